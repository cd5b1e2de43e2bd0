"""Evaluations on held-out rows: which rows, scored how, what they say, which checkpoint is the best.

ms-swift's own evaluation does the work. Here it gets a fixed set of rows that costs at most a share of the
run, answers greedily unless ``--num_generations_eval`` asks for more, and leaves training's random numbers
alone.
"""

import math
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import numpy
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import Dataset

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.ms_swift.hf import RepeatSampler
from swift_grpo_ext.ms_swift.shared import RequestConfig, get_logger
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.held_out_rows import HeldOutRows
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import Rewards
from swift_grpo_ext.watch.held_out import (
    TOTAL,
    Evaluation,
    HeldOutHistory,
    append,
    meant_metric,
    metric_of,
    read_evaluations,
)

logger = get_logger()


class HeldOut:
    """Held-out rewards of one rank; every rank sees the same scores, so all decide alike."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self._host = host
        self._settings = settings
        self._history = HeldOutHistory()
        self._rows = HeldOutRows(host, settings)
        self._collected: list[Rewards] = []  # of the evaluation at hand
        self._training_rewards: list[float] = []  # one for each step since the last evaluation
        self.active = False
        self._evaluating = False

    def begin(self, logged_names: Mapping[str, str]) -> None:
        """The trainer is built: decide whether it evaluates, and by which reward the best is chosen.

        Args:
            logged_names: Of rewards, by the names under which they were asked for.
        """
        if self._host.eval_dataset is None or self._host.args.eval_strategy == "no":
            return
        reason = self._why_off()
        self.active = not reason
        if reason:
            logger.info(f"swift-grpo-ext: held_out off ({reason})")
        else:
            self._choose_metric(logged_names)

    def _why_off(self) -> str:
        """Why ms-swift's own evaluation is left as it is; empty if it is not."""
        host = self._host
        if self._settings.disables("trainer.held_out"):
            return "switched off; SWIFT_GRPO_EXT_DISABLE without trainer.held_out"
        if host.args.eval_use_evalscope:
            return "benchmarks are evaluated; --eval_use_evalscope false"
        if not hasattr(host.eval_dataset, "select"):
            return "the validation rows cannot be chosen: their dataset has no select()"
        if host.args.async_generate:
            return "an evaluation gets the rollouts of the one before; --async_generate false"
        if host.template.sequence_parallel_size > 1:
            return "sequence parallel shares rows out in another order; --sequence_parallel_size 1"
        return ""

    def _choose_metric(self, logged_names: Mapping[str, str]) -> None:
        """Let ``--metric_for_best_model`` take a reward by the name that was typed.

        Raises:
            RefusedError: It is the name of no reward, and nearly that of one: the first evaluation would end
                the run.
        """
        args = self._host.args
        typed = args.metric_for_best_model or TOTAL
        rewards = [*logged_names, *self._host.reward_func_names]
        if meant := meant_metric(typed, rewards):
            where = f"--metric_for_best_model {typed}"
            fix = f"--metric_for_best_model {'eval_reward' if meant == TOTAL else meant}"
            raise RefusedError("no reward of this run has this name", where=where, fix=fix)
        metric = metric_of(typed, rewards)
        self._history.metric = logged_names.get(metric, metric)
        if self._history.metric != TOTAL:
            args.metric_for_best_model = f"rewards/{self._history.metric}/mean"
        elif "loss" in typed:
            logger.warning(
                f"swift-grpo-ext: --metric_for_best_model {typed} chooses a checkpoint by the loss of GRPO, "
                "which says nothing about its answers; --metric_for_best_model eval_reward"
            )
        if args.greater_is_better is None:
            args.greater_is_better = "loss" not in typed
        self._history.greater_is_better = args.greater_is_better or "loss" in typed

    # While training goes on.

    @contextmanager
    def rollout_timed(self, completions: int) -> Iterator[None]:
        """Measures what a completion of training costs, from which the size of an evaluation follows."""
        began = time.monotonic()
        yield
        if self._host.model.training:
            self._rows.cost.rollout_seconds += time.monotonic() - began
            self._rows.cost.completions += completions

    def note_training(self, logs: dict[str, float]) -> None:
        """Keep the mean reward that a training step logged."""
        reward = logs.get(TOTAL)
        if self.active and reward is not None and math.isfinite(float(reward)):
            self._training_rewards.append(float(reward))

    # An evaluation.

    def in_order(self, dataset: Dataset[object]) -> RepeatSampler | None:
        """The rows of an evaluation in the same order every time; None: as ms-swift orders them."""
        return RepeatSampler(dataset, self._host.num_generations_eval, shuffle=False) if self.active else None

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """While this is open, ms-swift evaluates; training's random numbers are afterwards what they were."""
        if not self.active:
            yield
            return
        if not self._rows.words:
            self._rows.choose(self._history)
        self._collected = []
        # In training a batch that is not full is left out; here it is a part of the rows.
        every_row = swapped(self._host.args, "dataloader_drop_last", False)
        evaluating = swapped(self, "_evaluating", True)
        rollout = self._host.rollout
        seeds = swapped(rollout, "generations", rollout.generations)
        with self._rows.cost.evaluation(), random_numbers_kept(), seeds, every_row, evaluating:
            yield

    def greedy(self, config: RequestConfig) -> RequestConfig:
        """The settings of a request: in evaluations the likeliest answer, unless several are asked for."""
        if not self._evaluating or self._host.num_generations_eval > 1:
            return config
        return replace(config, temperature=0.0)

    def collect(self, rewards: Rewards) -> None:
        """Keep the scores of an evaluation's batch, of all ranks."""
        if self._evaluating:
            self._collected.append(rewards.detach().float().cpu())

    def settle(self) -> None:
        """All batches are scored and ms-swift is about to log: judge, and hand the figures to its log.

        What follows, a last checkpoint and the end, is of all ranks: where one cannot judge, none does.
        """
        if not self._collected or not self._evaluating:
            return
        host = self._host
        reason = host.guard.together("held-out rewards", self._judge)
        # With Megatron the last rank alone has the training reward, and a resumed rank may lack the history.
        if agreed_max(int(bool(reason)), host.accelerator.device):
            logger.warning(
                f"swift-grpo-ext [held-out] saving and stopping at step {host.state.global_step}: "
                f"{reason or 'another rank says why'}"
            )
            self._save_and_stop()

    def _judge(self) -> str:
        """Keep an evaluation and tell of it; why the run should end, empty if it should go on."""
        evaluation = self._evaluation()
        before = self._history.newest
        self._history.add(evaluation)
        self._training_rewards = []
        self._collected = []
        self._log(self._figures(evaluation, before))
        self._tell(evaluation, before)
        if self._host.accelerator.is_main_process:
            self._write(evaluation)
        return self._history.why_stop(self._settings.held_out_stop)

    def _save_and_stop(self) -> None:
        self._host.control.should_save = True
        self._host.control.should_training_stop = True

    def _evaluation(self) -> Evaluation:
        """The scores of each row, by reward; a row that was answered several times has their mean."""
        host = self._host
        samples = host.num_generations_eval
        scores = torch.cat(self._collected)
        # The last batch is filled up with rows from the front, so that all ranks have as many.
        rows = min(len(host.eval_dataset), len(scores) // samples)
        scores = scores[: rows * samples]
        weights = host.reward_weights.to(scores)
        total = (scores.nan_to_num() * weights).sum(1)
        total = total.masked_fill(scores.isnan().all(1), torch.nan)
        columns = {TOTAL: total, **dict(zip(host.reward_func_names, scores.T, strict=False))}
        training = self._training_rewards
        return Evaluation(
            step=host.state.global_step,
            scores={name: _means(column.reshape(rows, samples)) for name, column in columns.items()},
            seconds=self._rows.cost.evaluation_seconds_so_far,
            rows=self._rows.words,
            training_reward=fmean(training) if training else None,
            training_error=stdev(training) / math.sqrt(len(training)) if len(training) > 1 else None,
        )

    def _log(self, figures: dict[str, float]) -> None:
        """Hand figures to ms-swift, which puts ``eval_`` in front of each."""
        self._host._metrics["eval"].update({name: [value] for name, value in figures.items()})

    def _figures(self, evaluation: Evaluation, before: Evaluation | None) -> dict[str, float]:
        """Of an evaluation, for the trackers."""
        figures: dict[str, float] = {}
        for name in evaluation.scores:
            score = evaluation.interval(name)
            if score is None:
                continue
            prefix = name if name == TOTAL else f"rewards/{name}"
            figures[name if name == TOTAL else f"{prefix}/mean"] = score.mean
            if math.isfinite(score.low):
                figures[f"{prefix}_low"] = score.low
                figures[f"{prefix}_high"] = score.high
        if before and (change := evaluation.change_since(before)):
            figures[f"{TOTAL}_change"] = change.mean
        return figures

    def _tell(self, evaluation: Evaluation, before: Evaluation | None) -> None:
        """One line for people."""
        metric = self._history.metric
        score = evaluation.interval(metric)
        if score is None:
            logger.warning(
                f"swift-grpo-ext [held-out] step {evaluation.step}: no row was scored under {metric}; do the "
                "validation rows have gold answers?"
            )
            return
        parts = [f"{metric} {score}"]
        if before and (change := evaluation.change_since(before, metric)):
            parts.append(
                f"{change.mean:+.3g} ({change.low:+.3g} to {change.high:+.3g}) since step {before.step}"
            )
        best = self._history.best
        if best is not None:
            parts.append("the best so far" if best.step == evaluation.step else f"best at step {best.step}")
        if evaluation.unscored:
            parts.append(f"{evaluation.unscored} rows not scored")
        parts.append(f"{evaluation.seconds:.0f} s")
        logger.info(f"swift-grpo-ext [held-out] step {evaluation.step}: {', '.join(parts)}")

    def _write(self, evaluation: Evaluation) -> None:
        try:
            append(Path(self._host.args.output_dir), evaluation)
        except OSError as error:
            logger.warning(f"swift-grpo-ext [held-out] step {evaluation.step} is not in the report: {error}")

    def newest(self) -> float | None:
        """The mean of the newest evaluation; None before the first, or if no row was scored."""
        newest = self._history.newest
        scores = newest.scored(self._history.metric) if newest else ()
        return fmean(scores) if scores else None

    # The best checkpoint.

    def prefer_last(self, metrics: Mapping[str, float]) -> None:
        """Of equal evaluations the last is the best: let ms-swift forget one that this one equals."""
        name = self._host.args.metric_for_best_model.removeprefix("eval_")
        if self.active and metrics.get(f"eval_{name}") == self._host.state.best_metric:
            self._host.state.best_metric = None

    def saved_if_best(self, is_best: bool) -> bool:
        """Have the best checkpoint saved, also at a step at which none would be; returns whether it is."""
        if self.active and is_best and self._host.args.save_strategy != "no":
            self._host.control.should_save = True
        return is_best

    def resume(self, checkpoint: str | None) -> None:
        """Go on with the evaluations of the run that a checkpoint is of."""
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

    def end(self) -> None:
        """Training has ended: name the best checkpoint."""
        best = self._history.best
        if best is None or not self._host.accelerator.is_main_process:
            return
        saved = self._host.state.best_model_checkpoint or "was not saved; --save_strategy steps"
        logger.info(
            f"swift-grpo-ext [held-out] best checkpoint: {saved} (step {best.step}, held-out "
            f"{self._history.metric} {self._history.best_interval})"
        )


def _means(scores: Float[Tensor, "rows answers"]) -> tuple[float | None, ...]:
    """Mean of the scored answers of each row; None where there is none."""
    means = scores.nanmean(1).tolist()
    return tuple(None if math.isnan(mean) else mean for mean in means)


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """What is drawn while this is open changes nothing of what is drawn afterwards."""
    of_python = random.getstate()
    of_numpy = numpy.random.get_state()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(of_python)
        numpy.random.set_state(of_numpy)
