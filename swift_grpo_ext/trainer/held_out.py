"""Evaluations on held-out rows, with either engine: which rows, scored how, which checkpoint is the best.

ms-swift's own evaluation does the work. Here it answers the same rows each time, greedily unless
``--num_generations_eval`` asks for more, and leaves training's random numbers alone. What differs between the
engines is in `evaluation.py` and `megatron/held_out.py`.
"""

import hashlib
import json
import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy
import torch
from datasets import Dataset
from jaxtyping import Float
from torch import Tensor

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.ms_swift.shared import RequestConfig, get_logger
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.samples import Rewards
from swift_grpo_ext.watch.held_out import (
    TOTAL,
    Evaluation,
    HeldOutHistory,
    append,
    meant_metric,
    metric_of,
)

logger = get_logger()


class HeldOut:
    """Held-out rewards of one rank; every rank sees the same scores, so all decide alike."""

    def __init__(self, host: Any, settings: Settings) -> None:
        self._host = host
        self._settings = settings
        self._history = HeldOutHistory()
        self._rows = ""  # which are answered, with a digest of their text
        self._collected: list[Rewards] = []  # of the current evaluation
        self._evaluating = False
        self._began = 0.0  # start of the current evaluation, in seconds of the clock
        self.active = False
        self.why_off = ""  # why ms-swift evaluates by itself
        self.why_idle = ""  # why nothing is evaluated

    # What differs between the engines.

    def _batch(self) -> int:
        """Rows come in multiples of this."""
        return 1

    def _log(self, figures: dict[str, float]) -> None:
        """Hand figures to ms-swift's log."""
        raise NotImplementedError

    def _save_and_stop(self) -> None:
        """Save a checkpoint and end the run."""
        raise NotImplementedError

    # Before the first evaluation.

    def _begin(self) -> None:
        """The run evaluates: choose its rows, and the reward by which the best is chosen."""
        self.active = True
        self._choose_rows()
        self._choose_metric()

    def _choose_rows(self) -> None:
        """Fix the rows for the run, as many as fill batches, by its seed: the same on all ranks."""
        host = self._host
        seed = host.args.seed
        total = len(host.eval_dataset)
        size = total // self._batch() * self._batch()
        if size < total:
            chosen = sorted(random.Random(seed).sample(range(total), size))
            host.eval_dataset = host.eval_dataset.select(chosen)
        samples = host.num_generations_eval
        answers = "answered greedily" if samples == 1 else f"{samples} sampled answers each"
        words = f"{size} of {total} validation rows (seed {seed}), {answers}"
        logger.info(f"swift-grpo-ext [held-out] {words}")
        self._rows = f"{words}, {_digest(host.eval_dataset)}"

    def _choose_metric(self) -> None:
        """Let ``--metric_for_best_model`` take a reward by its name.

        Raises:
            RefusedError: It resembles a reward's name without being one: the first evaluation would end the
                run. Or the best is to have the lowest reward.
        """
        args = self._host.args
        typed = args.metric_for_best_model or TOTAL
        rewards = self._host.reward_func_names
        if meant := meant_metric(typed, rewards):
            where = f"--metric_for_best_model {typed}"
            fix = f"--metric_for_best_model {'eval_reward' if meant == TOTAL else meant}"
            raise RefusedError("no reward of this run has this name", where=where, fix=fix)
        if args.greater_is_better is False and "loss" not in typed:
            raise RefusedError(
                "GRPO raises every reward, so the best checkpoint has the highest",
                where="--greater_is_better false",
                fix="leave it out, and let the reward be higher where the answer is better",
            )
        self._history.metric = metric_of(typed, rewards)
        if self._history.metric != TOTAL:
            args.metric_for_best_model = f"rewards/{self._history.metric}/mean"
        elif "loss" in typed:
            logger.warning(
                f"swift-grpo-ext: --metric_for_best_model {typed} chooses a checkpoint by the loss of GRPO, "
                "which says nothing about its answers; --metric_for_best_model eval_reward"
            )
        args.greater_is_better = "loss" not in typed

    # An evaluation.

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """While this is open, ms-swift evaluates; training's random numbers are afterwards what they were."""
        if not self.active:
            yield
            return
        self._collected = []
        self._began = time.monotonic()
        rollout = self._host.rollout
        with (
            random_numbers_kept(),
            swapped(rollout, "generations", rollout.generations),
            swapped(self, "_evaluating", True),
        ):
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

        A last checkpoint and the end of the run involve all ranks: if one cannot judge, none does.
        """
        if not self._collected or not self._evaluating:
            return
        host = self._host
        reason = host.guard.together("held-out rewards", self._judge)
        # A resumed rank may lack the history.
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
        self._collected = []
        self._log(_figures(evaluation, before))
        self._tell(evaluation, before)
        if self._host.accelerator.is_main_process:
            self._write(evaluation)
        return self._history.why_stop(self._settings.held_out_stop)

    def _evaluation(self) -> Evaluation:
        """The scores of each row, by reward; a row that was answered several times has their mean."""
        host = self._host
        samples = host.num_generations_eval
        scores = torch.cat(self._collected)
        # The last batch is filled up with rows from the front, so that all ranks have equally many.
        rows = min(len(host.eval_dataset), len(scores) // samples)
        scores = scores[: rows * samples]
        weights = host.reward_weights.to(scores)
        total = (scores.nan_to_num() * weights).sum(1)
        total = total.masked_fill(scores.isnan().all(1), torch.nan)
        columns = {TOTAL: total, **dict(zip(host.reward_func_names, scores.T, strict=False))}
        return Evaluation(
            step=host.state.global_step,
            scores={name: _means(column.reshape(rows, samples)) for name, column in columns.items()},
            seconds=time.monotonic() - self._began,
            rows=self._rows,
        )

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

    def end(self) -> None:
        """Training has ended: name the best checkpoint."""
        best = self._history.best
        if best is None or not self._host.accelerator.is_main_process:
            return
        saved = self._host.state.best_model_checkpoint or "was not saved; --save_strategy steps"
        logger.info(
            f"swift-grpo-ext [held-out] best checkpoint: {saved} (step {best.step}, held-out "
            f"{self._history.metric} {self._history.best_in_words})"
        )


def _figures(evaluation: Evaluation, before: Evaluation | None) -> dict[str, float]:
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


def _means(scores: Float[Tensor, "rows answers"]) -> tuple[float | None, ...]:
    """Mean of the scored answers of each row; None without any."""
    means = scores.nanmean(1).tolist()
    return tuple(None if math.isnan(mean) else mean for mean in means)


def _digest(dataset: Dataset) -> str:
    """Tells a validation set from another by the text of its rows; images are not loaded."""
    texts = hashlib.sha256()
    for row in dataset.select_columns("messages"):
        texts.update(json.dumps(row, ensure_ascii=False, default=str, sort_keys=True).encode())
    return texts.hexdigest()[:12]


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Restore random states on exit: numbers drawn while this is open change nothing afterwards."""
    of_python = random.getstate()
    of_numpy = numpy.random.get_state()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(of_python)
        numpy.random.set_state(of_numpy)
