"""Is it learning? One sentence, a few figures, and the reasons."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from swift_grpo_ext.watch.held_out import TOTAL, HeldOutHistory, metric_of
from swift_grpo_ext.watch.journal import read_events
from swift_grpo_ext.watch.report.run import Run, Series

Level = Literal["good", "warn", "bad"]
MIN_STEPS = 10
# A rise of the mean reward counts when it exceeds so many standard errors.
CLEAR = 3.0


@dataclass(frozen=True)
class Figure:
    """One number on top of the report: label, value, and a note in small print."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the logged figures say: one sentence, and what it rests on, one sentence each."""

    level: Level
    headline: str
    reasons: tuple[str, ...] = ()


class Trend(NamedTuple):
    """Mean of the first and of the last fifth of a series, and the standard error of their difference."""

    first: float
    last: float
    error: float


def trend(series: Series) -> Trend | None:
    """Compare the two ends of a series; None if it is too short to say."""
    values = [value for value in series.values() if math.isfinite(value)]
    if len(values) < MIN_STEPS:
        return None
    size = max(2, len(values) // 5)
    ends = (values[:size], values[-size:])
    first, last = (statistics.fmean(end) for end in ends)
    error = math.sqrt(sum(statistics.variance(end) / size for end in ends))
    return Trend(first, last, error)


# Figures without which nothing is learned, if all of them are 0 in every step.
_NEEDED = (
    (("grad_norm",), "no step had a gradient"),
    (("watch/moved", "watch/master_moved"), "no parameter moved"),
    (("watch/advantaged",), "no completion had an advantage"),
)
_SECTIONS = ("bill", "engine-worst")  # notes that the page draws
_HELD_OUT_PATIENCE = 3  # evaluations
_PATIENCE = 3  # fewer steps may be chance, or the first one of a warmup, which has a learning rate of 0


def _always_0(run: Run, *names: str) -> bool:
    values = [value for name in names for value in run.finite(name).values()]
    steps = max(len(run.series(name)) for name in names)
    return steps >= _PATIENCE and not any(value > 0 for value in values)


def judge(run: Run) -> Verdict:
    """The verdict on a run, from its logged figures and what the monitors wrote down."""
    history = held_out_history(run)
    findings = _findings_of_monitors(run)
    problems = (text for rule, text in _signal_problems(run) if rule not in findings)
    reasons = (
        *_of_held_out(run, history),
        *findings.values(),
        *problems,
        *_what_counts(run),
    )
    for names, nothing in _NEEDED:
        if _always_0(run, *names):
            return Verdict("bad", f"Nothing is learned: {nothing}.", reasons)
    reward = trend(run.series("reward"))
    if not run.series("reward"):
        return Verdict("bad", "Nothing is learned: no completion was scored.", reasons)
    if reward is None:
        steps = len(run.finite("reward"))
        early = f"Too early to tell: {steps} of the {MIN_STEPS} steps that are needed have a reward."
        return Verdict("warn", early, reasons)
    fault = history.why_stop(_HELD_OUT_PATIENCE)
    if fault:
        return Verdict("bad", f"It gets worse on held-out rows: {fault}.", reasons)
    words = f"from {reward.first:.3g} to {reward.last:.3g}"
    grounds = (f"Mean reward of the first and last fifth of the steps, ± {reward.error:.2g}.", *reasons)
    if abs(reward.last - reward.first) <= CLEAR * reward.error:
        return Verdict("warn", f"No clear change: the reward went {words}.", grounds)
    if reward.last < reward.first:
        return Verdict("bad", f"It gets worse: the reward fell {words}.", grounds)
    return Verdict("good", f"It learns: the reward rose {words}.", grounds)


def held_out_history(run: Run) -> HeldOutHistory:
    """The evaluations of a run, judged by the reward that chose its best checkpoint."""
    typed = str(run.arguments.get("metric_for_best_model") or TOTAL)
    rewards = {name for evaluation in run.held_out for name in evaluation.scores}
    less_is_better = run.arguments.get("greater_is_better") is False and "loss" not in typed
    return HeldOutHistory(metric_of(typed, rewards), not less_is_better, list(run.held_out))


_TRENDS = {
    "reward": "reward",
    "reward std in a group": "reward_std",
    "gradient norm": "grad_norm",
    "KL to the reference": "kl",
    "tokens a completion": "completions/mean_length",
}


def figures(run: Run) -> list[Figure]:
    """The numbers on top of the report."""
    ends = {label: trend(run.series(name)) for label, name in _TRENDS.items()}
    found = [
        Figure(label, f"{both.first:.3g} → {both.last:.3g}", "first → last fifth")
        for label, both in ends.items()
        if both
    ]
    if seconds := run.finite("step_time").values():
        found.append(Figure("seconds a step", f"{statistics.median(seconds):.3g}", "median"))
    return [_steps(run), *found]


def _of_held_out(run: Run, history: HeldOutHistory) -> Iterable[str]:
    """The held-out reward at both ends, how sure the change is, and the best checkpoint."""
    best = history.best
    if best is None:
        return
    metric = history.metric
    first, *_, last = [history.comparable[0], *history.comparable]
    ends = f"{first.interval(metric)} at step {first.step}, {last.interval(metric)} at step {last.step}"
    change = last.change_since(first, metric)
    moved = f", a change of {change}" if change and first is not last else ""
    yield f"Held-out {metric} {ends}{moved}."
    left = {evaluation.step: _checkpoint(run, evaluation.step) for evaluation in history.best_first()}
    step, checkpoint = next((item for item in left.items() if item[1]), (best.step, None))
    where = f": {checkpoint}" if checkpoint else "; no checkpoint of that step is left"
    if step != best.step:
        where = f"; of the checkpoints that are left that of step {step} is the best: {checkpoint}"
    yield f"Best held-out {metric} {history.best_interval} at step {best.step}{where}."


def _checkpoint(run: Run, step: int) -> Path | None:
    """The folder of a step's checkpoint, if it is still there."""
    resumed = [run.resumed_from.parent] if run.resumed_from else []
    places = (folder / f"checkpoint-{step}" for folder in (run.folder, *resumed))
    return next((place for place in places if place.is_dir()), None)


def _findings_of_monitors(run: Run) -> dict[str, str]:
    """What the monitors said while the run went on, by rule, the newest words; not what has a section."""
    newest = {}
    kinds = ("verdict", "numerics", "stall", "failed", "note")
    for event in read_events(run.folder, kinds):
        name = str(event.get("id", event["kind"]))
        step = f" at step {event['step']}" if "step" in event else ""
        newest[name] = f"Monitor [{name}]{step}: {event.get('text', '')}"
    return {name: text for name, text in newest.items() if name not in _SECTIONS}


def _signal_problems(run: Run) -> Iterable[tuple[str, str]]:
    """What is wrong with the logged figures, each with the rule by which the monitors say the same."""
    if run.damaged:
        lines = "line was" if len(run.damaged) == 1 else "lines were"
        yield "damaged", f"{len(run.damaged)} damaged {lines} left out, the first: {run.damaged[0]}."
    names = ("loss", "grad_norm", "reward")
    if bad := [name for name in names if not all(map(math.isfinite, run.series(name).values()))]:
        yield "numerics", f"Not finite in at least one step: {', '.join(bad)}."
    equal = _mean(run, "frac_reward_zero_std", 0.0)
    if equal > 0.8:
        text = f"In {equal:.0%} of the groups every completion earned the same: they teach nothing."
        yield "few-varying-groups", text
    scored = _mean(run, "reward_coverage", 1.0)
    if scored < 0.99:
        yield "unscored", f"Only {scored:.0%} of the completions were scored by a reward."
    clipped = _mean(run, "completions/clipped_ratio", 0.0)
    if clipped > 0.5:
        yield "clipped", f"{clipped:.0%} of the completions were cut at the length limit before they ended."


def _mean(run: Run, name: str, otherwise: float) -> float:
    """Over the steps with a rollout; in those that did not log the figure it was as it should be."""
    figures = run.finite(name)
    steps = run.finite("reward").keys() | figures.keys()
    return statistics.fmean(figures.get(step, otherwise) for step in steps) if steps else otherwise


def _what_counts(run: Run) -> Iterable[str]:
    """Which figures mean learning, where those that people look at first cannot."""
    if run.series("kl"):
        return
    moved = run.finite("watch/moved").values()
    share = f" {100 * statistics.median(moved):.3g} % of them did in the median step." if moved else ""
    yield (
        "Loss and KL prove nothing here: on-policy the loss is 0 by construction, and with beta 0 no KL is "
        f"logged. The reward's trend does, and whether parameters move.{share}"
    )


def _steps(run: Run) -> Figure:
    planned = str(run.records[-1].get("global_step/max_steps", "")).partition("/")[2]
    last = str(run.records[-1]["step"])
    completions = sum(len(group.samples) for group in run.groups)
    evaluated = f", {run.evaluated:,} of evaluation not shown" if run.evaluated else ""
    logged = (
        f"{completions:,} completions logged{evaluated}" if completions else "completions were not logged"
    )
    return Figure("steps", last if planned in ("", last) else f"{last} of {planned}", logged)
