"""Is the policy better on rows that it was not trained on? Scores of a fixed set, evaluation by evaluation.

A mean over a few dozen rows is noisy, so each comes with a 95 % interval, and two evaluations are compared
row by row: the interval of a mean of differences is much narrower, because most of the noise is how hard each
row is (https://en.wikipedia.org/wiki/Paired_difference_test).
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, fmean, median, stdev

from pydantic import TypeAdapter, ValidationError

from swift_grpo_ext.errors import NEAR, OutputFolderError, nearest
from swift_grpo_ext.watch.journal import read_jsonl

FILE = "held_out.jsonl"  # in the run's output folder, one evaluation a line
TOTAL = "reward"  # the name of the rewards' weighted sum
ERROR_RATE = 0.05  # of intervals that do not hold the true mean
_FLAT_EVALUATIONS = 2  # so many times the evaluations of a fall make a standstill
_MEDIAN_CHANGE = math.sqrt(2) * NormalDist().inv_cdf(0.75)  # between two draws, in standard deviations: 0.954
_CLEAR_RISE = 3.0  # standard errors by which the training reward must have risen meanwhile


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval. ``low`` and ``high`` are infinite where one row alone was scored."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        mean = f"{self.mean:.3g}"
        return mean if math.isinf(self.low) else f"{mean} ({self.low:.3g} to {self.high:.3g})"


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

    def interval(self, reward: str = TOTAL, error_rate: float = ERROR_RATE) -> Interval | None:
        """Mean over the scored rows; None if there is none."""
        return interval(self.scored(reward), error_rate)

    @property
    def unscored(self) -> int:
        """Rows that no reward scored."""
        return sum(score is None for score in self.scores.get(TOTAL, ()))

    def change_since(
        self, before: "Evaluation", reward: str = TOTAL, error_rate: float = ERROR_RATE
    ) -> Interval | None:
        """Mean difference over the rows that both scored; None if there is none, or the rows are others."""
        if self.rows != before.rows:
            return None
        return interval(_differences([before], [self], reward), error_rate)


_EVALUATION = TypeAdapter(Evaluation)


def _differences(before: Sequence[Evaluation], after: Sequence[Evaluation], reward: str) -> list[float]:
    """Between the means of some evaluations and of others, of each row that both scored."""
    pairs = zip(_row_means(before, reward), _row_means(after, reward), strict=False)
    return [now - then for then, now in pairs if then is not None and now is not None]


def _row_means(evaluations: Sequence[Evaluation], reward: str) -> list[float | None]:
    """Of each row over the evaluations that scored it; None where none did."""
    rows = zip(*(evaluation.scores.get(reward, ()) for evaluation in evaluations), strict=False)
    scored = ([score for score in row if score is not None] for row in rows)
    return [fmean(row) if row else None for row in scored]


def swing(*courses: Sequence[float]) -> float:
    """Standard deviation of an evaluation's mean around the course of a run; 0 if there are no changes.

    By the median of the changes from one evaluation to the next, which single jumps do not move
    (https://en.wikipedia.org/wiki/Shewhart_individuals_control_chart).

    Args:
        courses: Means in order; from one course to the next there is no change.

    >>> round(swing([0.5, 0.6, 0.5, 0.6], [0.1, 0.1]), 3)
    0.105
    """
    changes = [abs(now - then) for course in courses for then, now in pairwise(course)]
    return median(changes) / _MEDIAN_CHANGE if changes else 0.0


def interval(
    values: Sequence[float], error_rate: float = ERROR_RATE, further_error: float = 0.0
) -> Interval | None:
    """Student's t interval of a mean; None for no values.

    Args:
        values: One a row.
        error_rate: Of so many intervals that do not hold the true mean, between 0 and 1.
        further_error: Standard error of the mean for other reasons than the rows.

    >>> print(interval([0.0, 1.0, 1.0, 1.0]))
    0.75 (-0.0456 to 1.55)
    """
    if not values:
        return None
    mean = fmean(values)
    if len(values) == 1:
        return Interval(mean, -math.inf, math.inf)
    from scipy.stats import t

    error = math.hypot(stdev(values) / math.sqrt(len(values)), further_error)
    half = float(t.ppf(1 - error_rate / 2, len(values) - 1)) * error
    return Interval(mean, mean - half, mean + half)


@dataclass
class HeldOutHistory:
    """The evaluations of a run, which of them is the best, and whether it is time to stop."""

    metric: str = TOTAL  # the reward that decides
    greater_is_better: bool = True
    evaluations: list[Evaluation] = field(default_factory=list)

    def add(self, evaluation: Evaluation) -> None:
        """Take in an evaluation; one of the same step replaces that (a resumed run does a step again)."""
        self.evaluations = [
            *(other for other in self.evaluations if other.step < evaluation.step),
            evaluation,
        ]

    @property
    def newest(self) -> Evaluation | None:
        """The last one; None before the first."""
        return self.evaluations[-1] if self.evaluations else None

    @property
    def comparable(self) -> list[Evaluation]:
        """Those on the rows of the newest one: a resumed run may have been given other rows."""
        rows = self.newest and self.newest.rows
        return [evaluation for evaluation in self.evaluations if evaluation.rows == rows]

    @property
    def best(self) -> Evaluation | None:
        """The comparable evaluation with the best mean; None before the first."""
        return next(iter(self.best_first()), None)

    @property
    def best_interval(self) -> Interval | None:
        """Mean of the best one, with an interval that allows for its having been chosen; None before any.

        The highest of many means is too high by chance, and its own 95 % interval misses the truth more often
        than in 5 %. So each of the means that it was chosen from has a part of the 5 %: then all of the
        intervals hold together, whichever is chosen (https://en.wikipedia.org/wiki/Bonferroni_correction).
        """
        best = self.best
        return best.interval(self.metric, ERROR_RATE / len(self._scored)) if best else None

    def best_first(self) -> list[Evaluation]:
        """The comparable evaluations by their means.

        Of equal ones the last comes first: over a few dozen rows means are often equal by chance, and the
        policy has been trained for longer.
        """
        newest_first = self._scored[::-1]  # sorted keeps the order of equal ones
        return sorted(newest_first, key=self._height, reverse=True)

    @property
    def _scored(self) -> list[Evaluation]:
        return [evaluation for evaluation in self.comparable if evaluation.scored(self.metric)]

    def _height(self, evaluation: Evaluation) -> float:
        """The mean, more being better."""
        mean = fmean(evaluation.scored(self.metric))
        return mean if self.greater_is_better else -mean

    def _better_end(self, change: Interval | None) -> float:
        """The better end of a change's interval, more being better; infinite if it is not known."""
        if change is None:
            return math.inf
        return change.high if self.greater_is_better else -change.low

    def fall(self, evaluations: int) -> str:
        """That the newest ``evaluations`` lie below the best as many in a row before them, as a sentence.

        Each of them lies below the best, and so does their mean, with its whole interval. Two things are
        drawn by chance: the rows, which are paired, and the policy, which swings from one evaluation to the
        next. A run that never gets worse is not to be stopped by any of its looks, so each look has a part of
        the 5 % that may go wrong: the k-th has 1 / k(k - 1), which adds up to 1, shared by the candidates for
        the best (https://en.wikipedia.org/wiki/Bonferroni_correction).

        Returns:
            The sentence; empty if they do not, or there are too few evaluations to know.
        """
        scored = self._scored
        start = len(scored) - evaluations
        if start < 1:
            return ""
        size = min(evaluations, start)
        heights = list(map(self._height, scored))
        candidates = [fmean(heights[end - size : end]) for end in range(size, start + 1)]
        highest = max(candidates)
        if max(heights[start:]) >= highest:
            return ""
        first = candidates.index(highest)
        best = scored[first : first + size]
        looks = len(scored) * (len(scored) - 1) * len(candidates)
        change = interval(
            _differences(best, scored[start:], self.metric),
            ERROR_RATE / looks,
            swing(heights[:start], heights[start:]) * math.sqrt(1 / size + 1 / evaluations),
        )
        if self._better_end(change) >= 0:
            return ""
        return (
            f"held-out {self.metric} has been below its best of steps {best[0].step} to {best[-1].step} for "
            f"{evaluations} evaluations, by {change}"
        )

    def why_stop(self, patience: int) -> str:
        """Why the run should end, as a sentence; empty if it should go on, or nobody asked (patience 0).

        It should after a `fall` of ``patience`` evaluations, or after twice as many without a gain while the
        training reward rises: then rewards are being exploited.
        """
        if not patience or self.best is None:
            return ""
        return self.fall(patience) or self._exploited(_FLAT_EVALUATIONS * patience)

    def _exploited(self, evaluations: int) -> str:
        """That the training reward rose, and the held-out one cannot have risen as much; empty if it can.

        None of the later ones exceeds the first, which is too good by chance: its interval widens with their
        number. Nor is the newest above the one before it with its whole interval: then it rises again.
        """
        scored = self._scored
        if len(scored) <= evaluations:
            return ""
        first, *later = scored[-1 - evaluations :]
        newest = later[-1]
        if max(map(self._height, later)) > self._height(first) or self._rises(scored[-2], newest):
            return ""
        rise = _clear_training_rise(first, newest)
        change = newest.change_since(first, self.metric, ERROR_RATE / len(scored))
        if rise <= 0 or self._better_end(change) >= rise or self._catches_up(newest):
            return ""
        return f"training reward up {rise:.2g}, held-out {self.metric} flat since step {first.step}"

    def _rises(self, before: Evaluation, newest: Evaluation) -> bool:
        """Whether an evaluation is better than the one before it, with its whole interval."""
        return self._better_end(before.change_since(newest, self.metric)) < 0

    def _catches_up(self, newest: Evaluation) -> bool:
        """Whether sampled training answers only come near greedy held-out ones, as in any policy."""
        if self.metric != TOTAL or not self.greater_is_better or newest.training_reward is None:
            return False
        return newest.training_reward <= self._height(newest)


def _clear_training_rise(since: Evaluation, now: Evaluation) -> float:
    """By how much the training reward has risen at least; 0 if it is not known."""
    if since.training_error is None or now.training_error is None:
        return 0.0
    error = math.hypot(since.training_error, now.training_error)
    return (now.training_reward or 0.0) - (since.training_reward or 0.0) - _CLEAR_RISE * error


def metric_of(typed: str, rewards: Collection[str]) -> str:
    """The reward that ``--metric_for_best_model`` names, as the user calls it; `TOTAL` for anything else.

    >>> metric_of("eval_rewards/ext_iou/mean", ["ext_iou"]), metric_of("loss", ["ext_iou"])
    ('ext_iou', 'reward')
    """
    name = _reward_in(typed)
    return name if name in rewards else TOTAL


def meant_metric(typed: str, rewards: Collection[str]) -> str:
    """The reward that a name which is none is probably a misspelling of; empty for a name of anything else.

    ms-swift logs other figures too, also of a reward: what is near to none is left to it.

    >>> meant_metric("eval_rewrad", ["ext_iou"]), meant_metric("ext_oiu", ["ext_iou"])
    ('reward', 'ext_iou')
    >>> meant_metric("eval_rewards/ext_iou/std", ["ext_iou"]), meant_metric("eval_loss", ["ext_iou"])
    ('', '')
    """
    name = _reward_in(typed)
    if any(name == reward or name.startswith((f"{reward}_", f"{reward}/")) for reward in (TOTAL, *rewards)):
        return ""
    return nearest(name, (TOTAL, *rewards), NEAR)


def _reward_in(typed: str) -> str:
    return typed.removeprefix("eval_").removeprefix("rewards/").removesuffix("/mean")


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
        with suppress(ValidationError):  # a line of another form
            history.add(_EVALUATION.validate_python(record))
    return history.evaluations


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
