"""Scores of a fixed set of held-out rows per evaluation: confidence intervals, and the best evaluation.

A mean over a few dozen rows is noisy, so each comes with a 95 % interval, and two evaluations are compared
row by row: the interval of a mean difference is much narrower, because most of the noise is the difficulty of
each row (https://en.wikipedia.org/wiki/Paired_difference_test).
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev

from pydantic import TypeAdapter, ValidationError

from swift_grpo_ext.errors import NEAR, OutputFolderError, nearest
from swift_grpo_ext.watch.journal import read_jsonl

FILE = "held_out.jsonl"  # in the run's output folder, one evaluation a line
TOTAL = "reward"  # the name of the rewards' weighted sum
ERROR_RATE = 0.05  # share of intervals that miss the true mean


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval. ``low`` and ``high`` are infinite where only one row was scored."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        mean = f"{self.mean:.3g}"
        return mean if math.isinf(self.low) else f"{mean} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: the score of each row under each reward; the order of rows never changes."""

    step: int
    scores: Mapping[str, tuple[float | None, ...]]  # by reward, `TOTAL` among them; None: not scored
    seconds: float = 0.0
    rows: str = ""  # description of the rows: evaluations are compared only if theirs are equal

    def scored(self, reward: str = TOTAL) -> list[float]:
        """The scores of the rows that have one."""
        return [score for score in self.scores.get(reward, ()) if score is not None]

    def interval(self, reward: str = TOTAL) -> Interval | None:
        """Mean over the scored rows with its interval; None without any."""
        return interval(self.scored(reward))

    @property
    def unscored(self) -> int:
        """Rows that no reward scored."""
        return sum(score is None for score in self.scores.get(TOTAL, ()))

    def change_since(self, before: "Evaluation", reward: str = TOTAL) -> Interval | None:
        """Mean difference over the rows scored in both; None without any, or if the rows differ."""
        if self.rows != before.rows:
            return None
        pairs = zip(before.scores.get(reward, ()), self.scores.get(reward, ()), strict=False)
        return interval([now - then for then, now in pairs if then is not None and now is not None])


_EVALUATION = TypeAdapter(Evaluation)


def interval(values: Sequence[float]) -> Interval | None:
    """Student's t interval, 95 %, of a mean; None for no values.

    >>> print(interval([0.0, 1.0, 1.0, 1.0]))
    0.75 (-0.0456 to 1.55)
    """
    if not values:
        return None
    mean = fmean(values)
    if len(values) == 1:
        return Interval(mean, -math.inf, math.inf)
    from scipy.stats import t

    half = float(t.ppf(1 - ERROR_RATE / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


@dataclass
class HeldOutHistory:
    """The evaluations of a run, the best of them, and when to stop."""

    metric: str = TOTAL  # the reward that decides which is best
    evaluations: list[Evaluation] = field(default_factory=list)

    def add(self, evaluation: Evaluation) -> None:
        """Add an evaluation; it replaces those of its step and later ones (a resumed run repeats steps)."""
        self.evaluations = [
            *(other for other in self.evaluations if other.step < evaluation.step),
            evaluation,
        ]

    @property
    def newest(self) -> Evaluation | None:
        """The last evaluation; None before the first."""
        return self.evaluations[-1] if self.evaluations else None

    @property
    def comparable(self) -> list[Evaluation]:
        """The evaluations on the same rows as the newest: a resumed run may use other rows."""
        rows = self.newest and self.newest.rows
        return [evaluation for evaluation in self.evaluations if evaluation.rows == rows]

    @property
    def best(self) -> Evaluation | None:
        """The comparable evaluation with the best mean; None before the first.

        The last of equal ones: over a few dozen rows means are often equal by chance, and its policy has been
        trained for longer.
        """
        return max(reversed(self._scored), key=self._mean, default=None)  # max returns the first of equals

    @property
    def best_in_words(self) -> str:
        """Mean of the best with its interval and the number of evaluations; empty before the first.

        The highest of several means is biased upwards, the more so the more there are: so the number of
        evaluations is stated.
        """
        number = len(self._scored)
        of_all = f"the best of {number} evaluations" if number > 1 else "of the only evaluation"
        return f"{self.best.interval(self.metric)}, {of_all}" if self.best else ""

    @property
    def _scored(self) -> list[Evaluation]:
        return [evaluation for evaluation in self.comparable if evaluation.scored(self.metric)]

    def _mean(self, evaluation: Evaluation) -> float:
        return fmean(evaluation.scored(self.metric))

    def why_stop(self, patience: int) -> str:
        """The reason to end the run, as a sentence: ``patience`` evaluations in a row without a better one.

        Empty if the run should go on, or patience is 0 (off).
        """
        scored = self._scored
        if not patience or not scored:
            return ""
        best = max(scored, key=self._mean)  # an equal one later is not better
        since = len(scored) - 1 - scored.index(best)
        if since < patience:
            return ""
        return (
            f"held-out {self.metric} has not been better than {best.interval(self.metric)} of step "
            f"{best.step} for {since} evaluation{'s' * (since > 1)}"
        )


def metric_of(typed: str, rewards: Collection[str]) -> str:
    """The reward named by ``--metric_for_best_model``, by the user's name for it; `TOTAL` otherwise.

    >>> metric_of("eval_rewards/ext_iou/mean", ["ext_iou"]), metric_of("loss", ["ext_iou"])
    ('ext_iou', 'reward')
    """
    name = _reward_in(typed)
    return name if name in rewards else TOTAL


def meant_metric(typed: str, rewards: Collection[str]) -> str:
    """The reward that a misspelt name probably means; empty for names of other metrics.

    ms-swift logs other metrics too, also of a reward: a name similar to no reward is left to it.

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
    """Append an evaluation to the run's file.

    Raises:
        OSError: The folder is not writable.
    """
    line = json.dumps(asdict(evaluation), ensure_ascii=False)
    with open(folder / FILE, "a", encoding="utf-8") as file:
        file.write(line + "\n")


def read_evaluations(folder: Path) -> list[Evaluation]:
    """The evaluations of a run, in order, those repeated by a resumed run only once; empty without any."""
    try:
        records = read_jsonl(folder / FILE)
    except OutputFolderError:
        return []
    history = HeldOutHistory()
    for record in records:
        with suppress(ValidationError):  # a line in another format
            history.add(_EVALUATION.validate_python(record))
    return history.evaluations
