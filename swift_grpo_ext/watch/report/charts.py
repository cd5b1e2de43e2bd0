"""Which curves a report shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from swift_grpo_ext.watch.phases import PHASES
from swift_grpo_ext.watch.report.run import Run, Series

MOST_POINTS = 1500


@dataclass(frozen=True)
class Line:
    """Finite values of one figure of a run; `low` and `high` edge a band around them, or are empty."""

    label: str
    run: int
    series: Series
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """Curves in one frame."""

    title: str  # with the unit if it has one
    lines: tuple[Line, ...] = ()
    percent: bool = False  # the figures are shares of 1
    stacked: bool = False  # the lines lie on top of each other
    exact: bool = False  # set, not sampled: a running mean of them would show what never was


_FIGURES = {
    "reward_std": Chart("standard deviation of the reward inside a group"),
    "frac_reward_zero_std": Chart("groups whose rewards are all equal", percent=True),
    "reward_coverage": Chart("completions that got a reward", percent=True),
    "kl": Chart("KL to the reference model (nats a token)"),
    "watch/kl_to_start": Chart("KL to the first policy, estimated (nats a token)"),
    "grad_norm": Chart("gradient norm before clipping"),
    "watch/moved": Chart("parameters that moved", percent=True),
    "completions/mean_length": Chart("completion length (tokens): mean and range"),
    "completions/clipped_ratio": Chart("completions cut at the length limit", percent=True),
    "clip_ratio/region_mean": Chart("tokens whose ratio was clipped", percent=True),
    "entropy/mean": Chart("entropy (nats a token)"),
    "watch/entropy": Chart("entropy at the sampled tokens (nats a token)"),
    "watch/engine_ratio": Chart(
        "rollout engine against trainer: mean of exp|d| of log-probs (1: equal; above 1.05 importance "
        "sampling is not sound)"
    ),
    "loss": Chart("loss"),
    "learning_rate": Chart("learning rate", exact=True),
    "step_time": Chart("step time (seconds)"),
}
_EDGES = {"completions/mean_length": ("completions/min_length", "completions/max_length")}
"""What edges the band around a figure."""


def charts(runs: Sequence[Run]) -> list[Chart]:
    """Charts of the figures that at least one of the runs has logged."""
    found = [_rewards(runs), *_each_reward(runs), *(_figure(runs, *figure) for figure in _FIGURES.items())]
    found += [_phases(run, number, len(runs)) for number, run in enumerate(runs)]
    return [chart for chart in found if chart.lines]


def thinned(line: Line, most: int = MOST_POINTS) -> Line:
    """The line with at most so many points: each the mean over as many neighbours."""
    size = -(-len(line.series) // most)
    if size <= 1:
        return line
    steps, means = [*line.series][size - 1 :: size], _means([*line.series.values()], size)
    low, high = (_means(edge, size) for edge in (line.low, line.high))
    return replace(line, series=dict(zip(steps, means, strict=True)), low=low, high=high)


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
        for line in _lines(runs, f"rewards/{name}/mean"):
            std = runs[line.run].finite(f"rewards/{name}/std")
            spreads = std.values() if std.keys() == line.series.keys() else ()
            pairs = list(zip(line.series.values(), spreads, strict=False))
            low, high = (tuple(mean + sign * spread for mean, spread in pairs) for sign in (-1, 1))
            lines.append(replace(line, low=low, high=high))
        yield Chart(f"{name}: mean ± standard deviation", tuple(lines))


def _figure(runs: Sequence[Run], name: str, chart: Chart) -> Chart:
    lines = list(_lines(runs, name))
    for at, line in enumerate(lines if name in _EDGES else ()):
        low, high = (runs[line.run].finite(edge) for edge in _EDGES[name])
        if low.keys() == high.keys() == line.series.keys():
            lines[at] = replace(line, low=tuple(low.values()), high=tuple(high.values()))
    return replace(chart, lines=tuple(lines))


def _lines(runs: Sequence[Run], name: str, label: str = "") -> Iterator[Line]:
    found = ((number, run.finite(name)) for number, run in enumerate(runs))
    return (Line(label, number, series) for number, series in found if series)


def _phases(run: Run, number: int, of: int) -> Chart:
    """Where the time of each step went; a phase that a step did not have took no time."""
    known = {phase: run.finite(f"seconds/{phase}") for phase in PHASES if phase != "start"}
    nothing = {record["step"]: 0.0 for record in run.records}
    shown = {phase.replace("_", " "): spent for phase, spent in known.items() if any(spent.values())}
    lines = tuple(Line(label, number, nothing | spent) for label, spent in shown.items())
    title = "seconds of each step by phase" + (f", run {number + 1}" if of > 1 else "")
    return Chart(title, lines, stacked=True)
