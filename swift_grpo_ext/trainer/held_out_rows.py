"""Which rows an evaluation answers: a fixed, seeded set that costs at most a share of the run."""

import hashlib
import json
import random
import time
from collections.abc import Iterator, Sized
from contextlib import contextmanager

from datasets import Dataset

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.group.batch_sizes import groups_in
from swift_grpo_ext.ms_swift.arguments import GRPOConfig
from swift_grpo_ext.ms_swift.shared import get_logger
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.watch.held_out import TOTAL, HeldOutHistory, rows_within

logger = get_logger()


class HeldOutRows:
    """The rows of every evaluation of a run, chosen at the first one, the same on all ranks."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self._host = host
        self._share = settings.held_out_share
        self.cost = Cost()
        self.words = ""  # which rows, with a digest of their text; empty until they are chosen

    def choose(self, history: HeldOutHistory) -> None:
        """Fix the rows for the rest of the run, as many as the share of time allows."""
        host = self._host
        seed = host.args.seed
        total = len(host.eval_dataset)
        size = self._affordable(total, history)
        if size < total:
            chosen = sorted(random.Random(seed).sample(range(total), size))
            host.eval_dataset = host.eval_dataset.select(chosen)
        samples = host.num_generations_eval
        answers = "answered greedily" if samples == 1 else f"{samples} sampled answers each"
        words = f"{size} of {total} validation rows (seed {seed}), {answers}"
        logger.info(
            f"swift-grpo-ext [held-out] {words}; evaluations take at most "
            f"{100 * self._share:.3g} % of the run (SWIFT_GRPO_EXT_HELD_OUT_SHARE)"
        )
        self.words = f"{words}, {_digest(host.eval_dataset)}"
        if history.newest and history.newest.rows != self.words:
            logger.warning(
                "swift-grpo-ext [held-out] the validation rows are not those of the resumed run: the best "
                "checkpoint is chosen anew"
            )
            host.state.best_metric = None
            host.state.best_global_step = None

    def _affordable(self, total: int, history: HeldOutHistory) -> int:
        """Rows of an evaluation, the same on all ranks; before the first step, whose cost is unknown, all."""
        host = self._host
        if history.newest:  # a resumed run goes on with as many
            return min(total, len(history.newest.scores.get(TOTAL, ())) or total)
        size = total
        if host.state.global_step and self.cost.completions:
            ranks = host.accelerator.num_processes
            samples = host.num_generations_eval
            # Ranks answer side by side, each its part of the rows, as in training.
            row_seconds = self.cost.rollout_seconds / self.cost.completions * samples / ranks
            between = self.cost.training_seconds / host.state.global_step * self._steps_between()
            size = rows_within(self._share, between, row_seconds, total, self._batch())
        # The first rank's clock decides for all.
        return agreed_max(size if host.accelerator.is_main_process else 0, host.accelerator.device)

    def _batch(self) -> int:
        """Rows that all ranks answer at a time."""
        host = self._host
        answers = host.args.per_device_eval_batch_size * host.accelerator.num_processes
        return max(1, answers // host.num_generations_eval)

    def _steps_between(self) -> float:
        """Optimizer steps between two evaluations."""
        host = self._host
        if host.args.eval_strategy == "steps" and host.state.eval_steps:
            return float(host.state.eval_steps)
        return host.state.max_steps / max(1.0, float(host.args.num_train_epochs))


def fit_evaluation_batch(dataset: Dataset | None, args: GRPOConfig) -> None:
    """Evaluate in batches of training's size, but of no more rows than there are.

    ms-swift's default is 1, where an engine answers one prompt at a time; and it asserts that there are as
    many rows as a batch of all ranks holds. Fewer rows than ranks are evaluated as ms-swift does it, with a
    group of sampled answers to each.

    Raises:
        RefusedError: There are fewer rows than ranks, and ms-swift could not evaluate them either.
    """
    if args.eval_strategy == "no" or args.eval_use_evalscope or not isinstance(dataset, Sized):
        return
    if args.num_generations_eval != 1:
        return
    ranks = args.world_size
    most = len(dataset) // ranks
    given = args.per_device_eval_batch_size
    if most == 0 and 0 < groups_in(given * ranks, args.num_generations) <= len(dataset):
        args.num_generations_eval = args.num_generations
        logger.info(
            f"swift-grpo-ext [held-out] fewer validation rows ({len(dataset)}) than ranks ({ranks}): "
            f"{args.num_generations} sampled answers to each, in place of a greedy one"
        )
        return
    if most == 0:
        raise RefusedError(
            f"{len(dataset)} validation rows for {ranks} ranks",
            where="--val_dataset",
            fix=f"at least {ranks} rows, or --eval_strategy no",
        )
    size = min(most, given if given > 1 else args.per_device_train_batch_size)
    if size != given:
        logger.info(
            f"swift-grpo-ext [held-out] {len(dataset)} validation rows are evaluated in batches of {size} on "
            f"each rank (--per_device_eval_batch_size {given})"
        )
        args.per_device_eval_batch_size = size


class Cost:
    """What training and evaluations take, in seconds."""

    def __init__(self) -> None:
        self.rollout_seconds = 0.0  # of training
        self.completions = 0
        self._began = time.monotonic()
        self._evaluation_began = 0.0
        self._evaluations = 0.0  # all that are over

    @property
    def training_seconds(self) -> float:
        """Since the run began, without evaluations that are over."""
        return time.monotonic() - self._began - self._evaluations

    @property
    def evaluation_seconds_so_far(self) -> float:
        """Of the evaluation at hand."""
        return time.monotonic() - self._evaluation_began

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """While this is open, the run evaluates."""
        self._evaluation_began = time.monotonic()
        yield
        self._evaluations += self.evaluation_seconds_so_far


def _digest(dataset: Dataset) -> str:
    """Tells a validation set from another by the text of its rows; images are not loaded."""
    texts = hashlib.sha256()
    for row in dataset.select_columns("messages"):
        texts.update(json.dumps(row, ensure_ascii=False, default=str, sort_keys=True).encode())
    return texts.hexdigest()[:12]
