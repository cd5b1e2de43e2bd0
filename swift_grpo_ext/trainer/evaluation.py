"""Held-out rewards with transformers: when, in which batches and order, and the best of the checkpoints."""

from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from pathlib import Path

from torch.utils.data import Dataset

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.features import switched_off
from swift_grpo_ext.ms_swift.arguments import GRPOConfig
from swift_grpo_ext.ms_swift.hf import RepeatSampler
from swift_grpo_ext.ms_swift.shared import get_logger
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.held_out import HeldOut
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.watch.held_out import read_evaluations

logger = get_logger()


class TrainerHeldOut(HeldOut):
    """Held-out rewards of transformers' trainer."""

    _host: Host

    def begin(self) -> None:
        """The trainer is built: decide whether it evaluates, and by which reward the best is chosen."""
        if self._host.eval_dataset is None or self._host.args.eval_strategy == "no":
            self.why_idle = "no held-out rows; --val_dataset"
        elif reason := self._reason():
            self.why_off = reason
            logger.info(f"swift-grpo-ext: held_out off ({reason})")
        else:
            self._begin()

    def _reason(self) -> str:
        """Reason why ms-swift's own evaluation is left as it is; empty if it is not."""
        host = self._host
        if why := switched_off(self._settings, "trainer", "held_out"):
            return why
        if host.args.eval_use_evalscope:
            return "benchmarks are evaluated; --eval_use_evalscope false"
        if not hasattr(host.eval_dataset, "select"):
            return "the validation rows cannot be chosen: their dataset has no select()"
        if host.args.async_generate:
            return "an evaluation gets the rollouts of the one before; --async_generate false"
        if host.template.sequence_parallel_size > 1:
            return "sequence parallel shares rows out in another order; --sequence_parallel_size 1"
        return ""

    # An evaluation.

    def in_order(self, dataset: Dataset[object]) -> RepeatSampler | None:
        """The rows of an evaluation in the same order every time; None: as ms-swift orders them."""
        return RepeatSampler(dataset, self._host.num_generations_eval, shuffle=False) if self.active else None

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """While this is open, ms-swift evaluates all rows, also those of a batch that is not full.

        The best of the run that this one was resumed from is forgotten if that answered other rows.
        """
        newest = self._history.newest
        if self.active and newest and newest.rows != self._rows:
            logger.warning(
                "swift-grpo-ext [held-out] the validation rows are not those of the resumed run: the best "
                "checkpoint is chosen anew"
            )
            self._host.state.best_metric = None
            self._host.state.best_global_step = None
        drops_last = not self.active and self._host.args.dataloader_drop_last
        with super().evaluating(), swapped(self._host.args, "dataloader_drop_last", drops_last):
            yield

    def _log(self, figures: dict[str, float]) -> None:
        # ms-swift puts ``eval_`` in front of each.
        self._host._metrics["eval"].update({name: [value] for name, value in figures.items()})

    def _save_and_stop(self) -> None:
        self._host.control.should_save = True
        self._host.control.should_training_stop = True

    # The best checkpoint.

    def prefer_last(self, metrics: Mapping[str, float]) -> None:
        """Prefer the last of equal evaluations: let ms-swift forget a best value that this one equals."""
        name = self._host.args.metric_for_best_model.removeprefix("eval_")
        if self.active and metrics.get(f"eval_{name}") == self._host.state.best_metric:
            self._host.state.best_metric = None

    def saved_if_best(self, is_best: bool) -> bool:
        """Have the best checkpoint saved, even at a step without a save; returns ``is_best``."""
        if self.active and is_best and self._host.args.save_strategy != "no":
            self._host.control.should_save = True
        return is_best

    def resume(self, checkpoint: str | None) -> None:
        """Continue the evaluations of the run that wrote a checkpoint."""
        if not self.active or not checkpoint:
            return
        folder = Path(checkpoint)
        number = folder.name.rpartition("-")[2]
        own = Path(self._host.args.output_dir)
        for evaluation in read_evaluations(folder.parent):
            if number.isdigit() and evaluation.step <= int(number):
                self._history.add(evaluation)
                if folder.parent.resolve() != own.resolve() and self._host.accelerator.is_main_process:
                    self._write(evaluation)


def fit_evaluation_batch(dataset: Sized | None, args: GRPOConfig) -> None:
    """Evaluate in batches of training's size, but of no more rows than there are.

    ms-swift's default is 1, where an engine answers one prompt at a time; and it asserts that there are as
    many rows as a batch of all ranks holds. Fewer rows than ranks are evaluated as ms-swift does it, with a
    group of sampled answers to each.

    Raises:
        RefusedError: There are fewer rows than ranks, and ms-swift could not evaluate them either.
    """
    is_left = args.eval_strategy == "no" or args.eval_use_evalscope
    if is_left or dataset is None or args.num_generations_eval != 1:
        return
    ranks = args.world_size
    most = len(dataset) // ranks
    configured = args.per_device_eval_batch_size
    groups, rest = divmod(configured * ranks, args.num_generations)
    if most:
        size = min(most, configured if configured > 1 else args.per_device_train_batch_size)
        if size != configured:
            logger.info(
                f"swift-grpo-ext [held-out] {len(dataset)} validation rows are evaluated in batches of "
                f"{size} on each rank (--per_device_eval_batch_size {configured})"
            )
            args.per_device_eval_batch_size = size
    elif not rest and groups <= len(dataset):
        args.num_generations_eval = args.num_generations
        logger.info(
            f"swift-grpo-ext [held-out] fewer validation rows ({len(dataset)}) than ranks ({ranks}): "
            f"{args.num_generations} sampled answers to each, in place of a greedy one"
        )
    else:
        raise RefusedError(
            f"{len(dataset)} validation rows for {ranks} ranks",
            where="--val_dataset",
            fix=f"at least {ranks} rows, or --eval_strategy no",
        )
