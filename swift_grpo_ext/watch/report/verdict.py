"""The verdict on a run, as one sentence with its reasons: is it learning?"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from swift_grpo_ext.watch.causes import FEW_GROUPS, first_cause
from swift_grpo_ext.watch.held_out import TOTAL, HeldOutHistory, metric_of
from swift_grpo_ext.watch.journal import read_events
from swift_grpo_ext.watch.records import RewardFacts, RolloutFacts, RunFacts, StepFacts
from swift_grpo_ext.watch.report.run import LoggedRun, Series

Level = Literal["good", "warn", "bad"]
MIN_STEPS = 10
CLEAR = 3.0  # standard errors by which a mean reward must have moved
# Share of a group's standard deviation: a smaller rise may be significant over many steps, but is negligible.
LEAST_EFFECT = 0.05
_PATIENCE = 3  # fewer steps may be chance, or the first of a warmup, where the learning rate is 0
_TYPED = ("num_generations", "beta", "temperature", "learning_rate")  # arguments that are facts of a run
_AT_ITS_TOP = 0.95  # a reward that stays at this value or above has nothing left to learn


@dataclass(frozen=True)
class Figure:
    """One number on top of the report: label, value, and a note in small print."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class RunVerdict:
    """The verdict of the logged figures: one sentence, and its reasons, one sentence each."""

    level: Level
    headline: str
    reasons: tuple[str, ...] = ()


class Trend(NamedTuple):
    """A reward at the start and now, and the bounds of its change; positive is better."""

    first: float
    last: float
    low: float
    high: float
    words: str = ""  # the change's uncertainty in words, if known

    @property
    def direction(self) -> int:
        """1 if it rose, -1 if it fell, 0 if neither is clear."""
        return int(self.low > 0) - int(self.high < 0)


def trend(series: Series, least: float = 0.0) -> Trend | None:
    """Compare the first fifth of a series with the last; None if it is too short.

    Args:
        series: Values by step.
        least: Changes below this do not count.
    """
    values = [value for value in series.values() if math.isfinite(value)]
    if len(values) < MIN_STEPS:
        return None
    size = max(2, len(values) // 5)
    ends = (values[:size], values[-size:])
    first, last = (statistics.fmean(end) for end in ends)
    error = math.sqrt(sum(statistics.variance(end) / size for end in ends))
    unsure = max(CLEAR * error, least)
    change = last - first
    return Trend(first, last, change - unsure, change + unsure, f"± {error:.2g}")


def judge(run: LoggedRun) -> RunVerdict:
    """The verdict on a run, from its logged metrics and the monitors' events."""
    history = held_out_history(run)
    causes = _of_monitors(run)
    cause = first_cause(list(_steps(run)), _typed(run), _PATIENCE)
    of_all_steps = cause if cause and cause.dead and cause.steps == len(run.records) else None
    if cause and not of_all_steps:
        causes.setdefault(cause.id, f"{cause.text}.")
    reasons = (
        *_of_held_out(run, history),
        *causes.values(),
        *_not_finite(run),
        *_what_counts(run),
    )
    if of_all_steps:
        return RunVerdict("bad", f"Nothing is learned: {of_all_steps.text}.", reasons)
    return _headline(run, history, reasons)


def _headline(run: LoggedRun, history: HeldOutHistory, reasons: tuple[str, ...]) -> RunVerdict:
    names = [TOTAL, *run.reward_names]
    held_out = {name: change for name in names if (change := _held_out_change(history, name))}
    kind = "held-out " if history.metric in held_out else ""
    metric = history.metric if kind else TOTAL
    least = LEAST_EFFECT * statistics.fmean(run.finite("reward_std").values() or [0.0])
    trained = {name: trend(run.series(_logged(name)), least) for name in names}
    trends = held_out if kind else {name: change for name, change in trained.items() if change}
    if metric not in trends:
        steps = len(run.finite("reward"))
        early = f"Too early to tell: {steps} of the {MIN_STEPS} steps that are needed have a reward."
        return RunVerdict("warn", early, reasons)
    main = trends[metric]
    verb = {-1: "fell", 0: "went", 1: "rose"}[main.direction]
    words = f"the {kind}{metric} {verb} from {main.first:.3g} to {main.last:.3g}"
    if kind:
        words += f", by {main.words}"
    else:
        reasons = (f"Mean reward of the first and last fifth of the steps, {main.words}.", *reasons)
    if main.direction < 0:
        return RunVerdict("bad", f"It gets worse: {words}.", reasons)
    if main.direction == 0:
        return RunVerdict("warn", f"No clear change: {words}.", reasons)
    if behind := _behind(trends, metric):
        return RunVerdict("warn", f"It learns in part: {words}; {behind}.", reasons)
    return RunVerdict("good", f"It learns: {words}.", reasons)


def _logged(reward: str) -> str:
    return reward if reward == TOTAL else f"rewards/{reward}/mean"


def _behind(trends: Mapping[str, Trend], metric: str) -> str:
    """Rewards, other than the main one, that stand still or fall; empty if all rise or are at their top."""
    parts = []
    for name, change in trends.items():
        if name in (TOTAL, metric) or change.direction > 0 or change.last >= _AT_ITS_TOP:
            continue
        if change.direction < 0:
            parts.append(f"{name} fell from {change.first:.3g} to {change.last:.3g}")
        else:
            parts.append(f"{name} stands still at {change.last:.3g}")
    return ", ".join(parts)


def held_out_history(run: LoggedRun) -> HeldOutHistory:
    """The evaluations of a run, judged by the reward that chose its best checkpoint."""
    typed = str(run.arguments.get("metric_for_best_model") or TOTAL)
    rewards = {name for evaluation in run.held_out for name in evaluation.scores}
    return HeldOutHistory(metric_of(typed, rewards), list(run.held_out))


def _held_out_change(history: HeldOutHistory, reward: str) -> Trend | None:
    """Change from the first to the newest evaluation, row by row; None without two on the same rows."""
    scored = [evaluation for evaluation in history.comparable if evaluation.scored(reward)]
    change = scored[-1].change_since(scored[0], reward) if len(scored) > 1 else None
    if change is None:
        return None
    first, last = (statistics.fmean(evaluation.scored(reward)) for evaluation in (scored[0], scored[-1]))
    return Trend(first, last, change.low, change.high, str(change))


def _of_held_out(run: LoggedRun, history: HeldOutHistory) -> Iterable[str]:
    """The best evaluation, and its checkpoint."""
    if best := history.best:
        checkpoint = run.folder / f"checkpoint-{best.step}"
        gone = "; no checkpoint of that step is left here"
        where = f": {checkpoint}" if checkpoint.is_dir() else gone
        yield f"Best held-out {history.metric} {history.best_in_words}, at step {best.step}{where}."


def _of_monitors(run: LoggedRun) -> dict[str, str]:
    """The newest message of each monitor during the run, by rule."""
    newest = {}
    for event in read_events(run.folder, ("verdict", "numerics", "stall", "failed", "note")):
        name = str(event.get("id", event["kind"]))
        step = f" at step {event['step']}" if "step" in event else ""
        newest[name] = f"Monitor [{name}]{step}: {event.get('text', '')}"
    return newest


def _typed(run: LoggedRun) -> RunFacts:
    """Facts of a run from its arguments."""
    arguments: dict[str, Any] = {
        name: run.arguments[name] for name in _TYPED if isinstance(run.arguments.get(name), (int, float))
    }
    return RunFacts(**arguments)


def _steps(run: LoggedRun) -> Iterable[StepFacts]:
    """Facts of each step from the log, also for a run without monitors."""
    for record in run.records:
        figures = {
            name: float(value)
            for name, value in record.items()
            if isinstance(value, (int, float)) and math.isfinite(value)
        }
        figure = figures.get
        coverage = figure("reward_coverage", 1.0) or 1.0
        of_all = RewardFacts("of this run", coverage if "reward" in figures else 0.0)
        constant = (
            RewardFacts(name, 1.0, figure(f"rewards/{name}/mean"), 1.0)
            for name in run.reward_names
            if figure(f"rewards/{name}/std") == 0
        )
        rollout = RolloutFacts(
            groups=FEW_GROUPS,
            rewards=(of_all, *constant) if "completions/mean_length" in record else (),
            advantaged=figure("watch/advantaged"),
            zero_variance=figure("frac_reward_zero_std"),
            clipped=figure("completions/clipped_ratio"),
            empty=figure("watch/empty"),
        )
        yield StepFacts(
            step=record["step"],
            learning_rate=figure("learning_rate"),
            grad_norm=figure("grad_norm"),
            moved=figure("watch/moved"),
            master_moved=figure("watch/master_moved"),
            rollout=rollout,
        )


def _not_finite(run: LoggedRun) -> Iterable[str]:
    """The main metrics that are not finite in some step."""
    names = ("loss", "grad_norm", "reward")
    if bad := [name for name in names if not all(map(math.isfinite, run.series(name).values()))]:
        yield f"Not finite in at least one step: {', '.join(bad)}."


def _what_counts(run: LoggedRun) -> Iterable[str]:
    """A hint at the metrics that show learning, where loss and KL cannot."""
    if not run.series("kl"):
        yield (
            "Loss and KL prove nothing here: on-policy the loss is 0 by construction, and with beta 0 no KL "
            "is logged. The reward's trend does, and whether parameters move."
        )
