"""Which curves a report shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from swift_grpo_ext.watch.phases import PHASES
from swift_grpo_ext.watch.report.run import Run, Series

MOST_POINTS = 1500


@dataclass(frozen=True)
class Line:
    """One figure of one run.

    Attributes:
        label: What it is, where a chart has several.
        run: Number of the run.
        series: The finite values.
        low: Lower edge of a band around the line, one value for each step; empty without a band.
        high: Its upper edge.
    """

    label: str
    run: int
    series: Series
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """Curves in one frame.

    Attributes:
        title: Heading, with the unit if it has one.
        lines: What it shows.
        percent: The figures are shares of 1.
        stacked: The lines lie on top of each other.
        exact: The figures are set, not sampled: a running mean of them would show what never was.
    """

    title: str
    lines: tuple[Line, ...] = ()
    percent: bool = False
    stacked: bool = False
    exact: bool = False


@dataclass(frozen=True)
class _Figure:
    """A logged figure, and two more that edge its band."""

    name: str
    title: str
    percent: bool = False
    edges: tuple[str, str] | None = None
    exact: bool = False


_FIGURES = (
    _Figure("reward_std", "standard deviation of the reward inside a group"),
    _Figure("frac_reward_zero_std", "groups whose rewards are all equal", percent=True),
    _Figure("reward_coverage", "completions that got a reward", percent=True),
    _Figure("kl", "KL to the reference model (nats a token)"),
    _Figure("watch/kl_to_start", "KL to the first policy, estimated (nats a token)"),
    _Figure("grad_norm", "gradient norm before clipping"),
    _Figure("watch/moved", "parameters that moved", percent=True),
    _Figure(
        "completions/mean_length",
        "completion length (tokens): mean and range",
        edges=("completions/min_length", "completions/max_length"),
    ),
    _Figure("completions/clipped_ratio", "completions cut at the length limit", percent=True),
    _Figure("clip_ratio/region_mean", "tokens whose ratio was clipped", percent=True),
    _Figure("entropy/mean", "entropy (nats a token)"),
    _Figure("watch/entropy", "entropy at the sampled tokens (nats a token)"),
    _Figure(
        "watch/engine_ratio",
        "rollout engine against trainer: mean of exp|d| of log-probs (1: equal; above 1.05 importance "
        "sampling is not sound)",
    ),
    _Figure("loss", "loss"),
    _Figure("learning_rate", "learning rate", exact=True),
    _Figure("step_time", "step time (seconds)"),
)


def charts(runs: Sequence[Run]) -> list[Chart]:
    """Charts of the figures that at least one of the runs has logged."""
    found = [_rewards(runs), *_each_reward(runs), *(_figure(runs, figure) for figure in _FIGURES)]
    found += [_phases(run, number, len(runs)) for number, run in enumerate(runs)]
    return [chart for chart in found if chart.lines]


def thinned(line: Line, most: int = MOST_POINTS) -> Line:
    """The line with at most so many points: each the mean over as many neighbours."""
    size = -(-len(line.series.steps) // most)
    if size <= 1:
        return line
    return replace(
        line,
        series=Series(line.series.steps[size - 1 :: size], _means(line.series.values, size)),
        low=_means(line.low, size),
        high=_means(line.high, size),
    )


def _means(values: Sequence[float], size: int) -> tuple[float, ...]:
    whole = len(values) - len(values) % size
    return tuple(sum(values[start : start + size]) / size for start in range(0, whole, size))


def _rewards(runs: Sequence[Run]) -> Chart:
    """The total, and with one run also its parts."""
    lines = list(_lines(runs, "reward", label="total" if len(runs) == 1 else ""))
    names = runs[0].reward_names()
    if len(runs) == 1 and len(names) > 1:
        lines += [line for name in names for line in _lines(runs, f"rewards/{name}/mean", label=name)]
    return Chart("reward", tuple(lines))


def _each_reward(runs: Sequence[Run]) -> Iterator[Chart]:
    for name in dict.fromkeys(name for run in runs for name in run.reward_names()):
        lines = []
        for number, run in enumerate(runs):
            mean, std = (
                run.series(f"rewards/{name}/mean").finite(),
                run.series(f"rewards/{name}/std").finite(),
            )
            spread = std.values if std.steps == mean.steps else ()
            low = tuple(value - deviation for value, deviation in zip(mean.values, spread, strict=False))
            high = tuple(value + deviation for value, deviation in zip(mean.values, spread, strict=False))
            if mean:
                lines.append(Line("", number, mean, low, high))
        yield Chart(f"{name}: mean ± standard deviation", tuple(lines))


def _figure(runs: Sequence[Run], figure: _Figure) -> Chart:
    lines = []
    for line in _lines(runs, figure.name):
        if figure.edges:
            low, high = (runs[line.run].series(name).finite() for name in figure.edges)
            if low.steps == high.steps == line.series.steps:
                line = replace(line, low=low.values, high=high.values)
        lines.append(line)
    return Chart(figure.title, tuple(lines), figure.percent, exact=figure.exact)


def _lines(runs: Sequence[Run], name: str, label: str = "") -> Iterator[Line]:
    for number, run in enumerate(runs):
        series = run.series(name).finite()
        if series:
            yield Line(label, number, series)


def _phases(run: Run, number: int, of: int) -> Chart:
    """Where the time of each step went; a phase that a step did not have took no time."""
    steps = tuple(record["step"] for record in run.records)
    lines = []
    for phase in PHASES:
        if phase == "start":  # before the first step
            continue
        known = dict(run.series(f"seconds/{phase}").finite())
        if any(known.values()):
            values = tuple(known.get(step, 0.0) for step in steps)
            lines.append(Line(phase.replace("_", " "), number, Series(steps, values)))
    title = "seconds of each step by phase" + (f", run {number + 1}" if of > 1 else "")
    return Chart(title, tuple(lines), stacked=True)
