"""Is the policy better on rows that it was not trained on? Scores of a fixed set, evaluation by evaluation.

A mean over a few dozen rows is noisy, so each comes with a 95 % interval, and two evaluations are compared
row by row: the interval of a mean of differences is much narrower, because most of the noise is how hard each
row is (https://en.wikipedia.org/wiki/Paired_difference_test).
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.watch.journal import read_jsonl

FILE = "held_out.jsonl"  # in the run's output folder, one evaluation a line
TOTAL = "reward"  # the name of the rewards' weighted sum
CONFIDENCE = 0.95
_FLAT_EVALUATIONS = 2  # so many times the evaluations of a fall make a standstill
_CLEAR_RISE = 3.0  # standard errors by which the training reward must have risen meanwhile


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval. ``low`` and ``high`` are infinite where one row alone was scored."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"{self.mean:.3g}"
        return f"{self.mean:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: the score of each row under each reward, in an order of rows that never changes."""

    step: int
    scores: Mapping[str, tuple[float | None, ...]]  # by reward, `TOTAL` among them; None: not scored
    seconds: float = 0.0
    rows: str = ""  # what was evaluated, in words: two evaluations are compared only if it is equal
    training_reward: float | None = None  # mean since the evaluation before
    training_error: float | None = None  # standard error of that mean

    def scored(self, reward: str = TOTAL) -> list[float]:
        """The scores of the rows that have one."""
        return [score for score in self.scores.get(reward, ()) if score is not None]

    def interval(self, reward: str = TOTAL) -> Interval | None:
        """Mean over the scored rows; None if there is none."""
        return interval(self.scored(reward))

    @property
    def unscored(self) -> int:
        """Rows that no reward scored."""
        return sum(score is None for score in self.scores.get(TOTAL, ()))

    def change_since(
        self, before: "Evaluation", reward: str = TOTAL, confidence: float = CONFIDENCE
    ) -> Interval | None:
        """Mean difference over the rows that both scored; None if there is none, or the rows are others."""
        if self.rows != before.rows:
            return None
        pairs = zip(before.scores.get(reward, ()), self.scores.get(reward, ()), strict=False)
        differences = [now - then for then, now in pairs if then is not None and now is not None]
        return interval(differences, confidence)


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Student's t interval of a mean, at a confidence between 0 and 1; None for no values.

    >>> print(interval([0.0, 1.0, 1.0, 1.0]))
    0.75 (-0.0456 to 1.55)
    """
    if not values:
        return None
    mean = fmean(values)
    if len(values) == 1:
        return Interval(mean, -math.inf, math.inf)
    from scipy.stats import t

    half = float(t.ppf((1 + confidence) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


@dataclass
class HeldOutHistory:
    """The evaluations of a run, which of them is the best, and whether it is time to stop."""

    metric: str = TOTAL  # the reward that decides
    greater_is_better: bool = True
    evaluations: list[Evaluation] = field(default_factory=list)

    def add(self, evaluation: Evaluation) -> None:
        """Take in an evaluation; one of the same step replaces that (a resumed run does a step again)."""
        self.evaluations = [one for one in self.evaluations if one.step < evaluation.step]
        self.evaluations.append(evaluation)

    @property
    def comparable(self) -> list[Evaluation]:
        """Those on the rows of the newest one: a resumed run may have been given other rows."""
        newest = self.evaluations[-1:]
        return [one for one in self.evaluations if newest and one.rows == newest[0].rows]

    @property
    def best(self) -> Evaluation | None:
        """The comparable evaluation with the best mean, the first of equal ones; None before the first."""
        sign = 1 if self.greater_is_better else -1
        means = {
            one.step: fmean(one.scored(self.metric)) for one in self.comparable if one.scored(self.metric)
        }
        candidates = [one for one in self.comparable if one.step in means]
        return max(candidates, key=lambda one: sign * means[one.step], default=None)

    def has_fallen(self, evaluation: Evaluation, best: Evaluation) -> bool:
        """Whether the difference to the best lies below 0 with its whole interval.

        The best of many noisy means is too good by chance, so the interval widens with their number
        (https://en.wikipedia.org/wiki/Bonferroni_correction).
        """
        confidence = 1 - (1 - CONFIDENCE) / len(self.comparable)
        change = evaluation.change_since(best, self.metric, confidence)
        if change is None:
            return False
        return change.high < 0 if self.greater_is_better else change.low > 0

    def fallen_for(self) -> int:
        """Evaluations in a row, up to the newest, that are clearly below the best."""
        best = self.best
        count = 0
        for evaluation in reversed(self.comparable):
            if best is None or not self.has_fallen(evaluation, best):
                break
            count += 1
        return count

    def why_stop(self, patience: int) -> str:
        """Why the run should end, as a sentence; empty if it should go on, or nobody asked (patience 0).

        It should after ``patience`` evaluations in a row below the best by more than their interval, or after
        twice as many without a gain while the training reward rises: then rewards are being exploited.
        """
        best = self.best
        if not patience or best is None:
            return ""
        newest = self.comparable[-1]
        if self.fallen_for() >= patience:
            change = newest.change_since(best, self.metric)
            return (
                f"held-out {self.metric} has been below its best of step {best.step} for {self.fallen_for()} "
                f"evaluations, now by {change}"
            )
        flat = self._flat_since(_FLAT_EVALUATIONS * patience)
        rise = _clear_training_rise(flat, newest) if flat else 0.0
        # Only if the held-out reward cannot have gained as much: few rows prove no standstill.
        if flat and rise > 0 and self._most_gained(newest, flat) < rise and not self._catches_up(newest):
            return f"training reward up {rise:.2g}, held-out {self.metric} flat since step {flat.step}"
        return ""

    def _most_gained(self, newest: Evaluation, since: Evaluation) -> float:
        """The better end of the interval of a change, more being better; infinite if it is not known.

        None of the later ones exceeds the earlier, which is too good by chance: it widens as in `has_fallen`.
        """
        confidence = 1 - (1 - CONFIDENCE) / len(self.comparable)
        change = newest.change_since(since, self.metric, confidence)
        if change is None:
            return math.inf
        return change.high if self.greater_is_better else -change.low

    def _catches_up(self, newest: Evaluation) -> bool:
        """Whether sampled training answers only come near greedy held-out ones, as in any policy."""
        score = newest.interval()
        if self.metric != TOTAL or not self.greater_is_better or score is None:
            return False
        return newest.training_reward is not None and newest.training_reward <= score.mean

    def _flat_since(self, evaluations: int) -> Evaluation | None:
        """The evaluation that none of so many later ones exceeds; None if one does, or there are fewer."""
        comparable = self.comparable
        if len(comparable) <= evaluations:
            return None
        start = comparable[-1 - evaluations]
        sign = 1 if self.greater_is_better else -1
        later = [one.change_since(start, self.metric) for one in comparable[-evaluations:]]
        exceeds = any(change is None or sign * change.mean > 0 for change in later)
        return None if exceeds else start


def _clear_training_rise(since: Evaluation, now: Evaluation) -> float:
    """By how much the training reward has risen at least; 0 if it did not, or is not known."""
    if since.training_reward is None or now.training_reward is None:
        return 0.0
    if since.training_error is None or now.training_error is None:
        return 0.0
    error = math.hypot(since.training_error, now.training_error)
    return max(0.0, now.training_reward - since.training_reward - _CLEAR_RISE * error)


def metric_of(typed: str, rewards: Collection[str]) -> str:
    """The reward that ``--metric_for_best_model`` names, as the user calls it; `TOTAL` for anything else.

    >>> metric_of("eval_rewards/ext_iou/mean", ["ext_iou"]), metric_of("loss", ["ext_iou"])
    ('ext_iou', 'reward')
    """
    name = typed.removeprefix("eval_").removeprefix("rewards/").removesuffix("/mean")
    return name if name in rewards else TOTAL


def append(folder: Path, evaluation: Evaluation) -> None:
    """Write an evaluation behind the others of a run.

    Raises:
        OSError: The folder cannot be written to.
    """
    line = json.dumps(asdict(evaluation), ensure_ascii=False)
    with open(folder / FILE, "a", encoding="utf-8") as file:
        file.write(line + "\n")


def read_evaluations(folder: Path) -> list[Evaluation]:
    """The evaluations of a run, in order, those that a resumed run did again once; empty if it had none."""
    try:
        records = read_jsonl(folder / FILE, damaged=[])
    except OutputFolderError:
        return []
    history = HeldOutHistory()
    for record in records:
        evaluation = _evaluation(record)
        if evaluation is not None:
            history.add(evaluation)
    return history.evaluations


def _evaluation(record: Mapping[str, Any]) -> Evaluation | None:
    """An evaluation from its line; None for a line of another form."""
    try:
        scores = {
            str(name): tuple(None if score is None else float(score) for score in column)
            for name, column in record["scores"].items()
        }
        return Evaluation(
            step=int(record["step"]),
            scores=scores,
            seconds=float(record["seconds"]),
            rows=str(record["rows"]),
            training_reward=record.get("training_reward"),
            training_error=record.get("training_error"),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def rows_within(share: float, interval_seconds: float, row_seconds: float, rows: int, step: int = 1) -> int:
    """How many of the ``rows`` an evaluation may take.

    Args:
        share: Of the run's time that evaluations may take, above 0 to 1.
        interval_seconds: Training time between two evaluations.
        row_seconds: What a row costs.
        rows: How many there are.
        step: The number is a multiple of this (rows of a batch of all ranks), at least one of them.

    >>> rows_within(0.05, 600.0, 0.5, 1000, step=8)
    56
    """
    affordable = share / (1 - share) * interval_seconds / row_seconds if share < 1 and row_seconds else rows
    if affordable >= rows:
        return rows
    return min(rows, max(step, int(affordable) // step * step))
