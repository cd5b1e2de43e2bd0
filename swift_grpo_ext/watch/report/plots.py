"""The curves of a run as PNG images."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.watch.report.run import Run, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#0891b2", "#65a30d", "#dc2626")
_INK, _GRID = "#334155", "#e2e8f0"
_SMOOTHING = 0.1  # weight of the newest value in the running mean


@dataclass(frozen=True)
class Line:
    """One logged figure in a plot."""

    name: str
    label: str


@dataclass(frozen=True)
class Plot:
    """One plot.

    Attributes:
        title: Its heading, with the unit if it has one.
        lines: What it shows.
        band: Two more figures, drawn as a band between them (least and greatest).
        percent: The figures are shares of 1.
    """

    title: str
    lines: tuple[Line, ...]
    band: tuple[str, str] | None = None
    percent: bool = False


def _line(name: str, label: str = "") -> tuple[Line, ...]:
    return (Line(name, label),)


# File name to plot; a plot none of whose figures the run logged is left out.
PLOTS: Mapping[str, Plot] = {
    "reward": Plot("reward", _line("reward", "total")),
    "reward_std": Plot("standard deviation of the reward inside a group", _line("reward_std")),
    "silent_groups": Plot("groups whose rewards are all equal", _line("frac_reward_zero_std"), percent=True),
    "coverage": Plot("completions that got a reward", _line("reward_coverage"), percent=True),
    "kl": Plot("KL to the reference model (nats a token)", _line("kl")),
    "grad_norm": Plot("gradient norm before clipping", _line("grad_norm")),
    "lengths": Plot(
        "completion length (tokens): mean, least to greatest",
        _line("completions/mean_length"),
        ("completions/min_length", "completions/max_length"),
    ),
    "cut": Plot("completions cut at the length limit", _line("completions/clipped_ratio"), percent=True),
    "clip": Plot("tokens whose ratio was clipped", _line("clip_ratio/region_mean"), percent=True),
    "entropy": Plot("entropy (nats a token)", _line("entropy/mean")),
    "loss": Plot("loss", _line("loss")),
    "learning_rate": Plot("learning rate", _line("learning_rate")),
    "step_time": Plot("step time (seconds)", _line("step_time")),
}


def draw_plots(run: Run) -> dict[str, bytes]:
    """Every plot that the run has figures for: file name without ending to PNG bytes."""
    drawn = {}
    for name, plot in PLOTS.items():
        lines = plot.lines
        if name == "reward" and len(run.reward_names()) > 1:
            lines = (*lines, *(Line(f"rewards/{each}/mean", each) for each in run.reward_names()))
        found = [(line.label, run.series(line.name).finite()) for line in lines]
        found = [(label, series) for label, series in found if series]
        if found:
            drawn[name] = _draw(plot, found, _band(run, plot))
    return drawn


def running_mean(values: Sequence[float], weight: float = _SMOOTHING) -> list[float]:
    """Exponential running mean, corrected for its start, so that the first value is the first mean."""
    mean = total = 0.0
    smoothed = []
    for value in values:
        mean = (1 - weight) * mean + weight * value
        total = (1 - weight) * total + weight
        smoothed.append(mean / total)
    return smoothed


def to_png(figure: Any) -> bytes:
    """Render a matplotlib figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def _band(run: Run, plot: Plot) -> tuple[Series, Series] | None:
    if plot.band is None:
        return None
    least, greatest = (run.series(name) for name in plot.band)
    return (least, greatest) if least and least.steps == greatest.steps else None


def _draw(plot: Plot, lines: Sequence[tuple[str, Series]], band: tuple[Series, Series] | None) -> bytes:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(5.2, 2.9))
    axes = figure.add_axes((0.12, 0.16, 0.86, 0.72))  # a fixed place: fitting it costs more than drawing
    if band is not None:
        axes.fill_between(band[0].steps, band[0].values, band[1].values, color=COLOURS[0], alpha=0.12, lw=0)
    for colour, (label, series) in zip(COLOURS * len(lines), lines, strict=False):
        _draw_line(axes, series, label, colour)
    axes.set_title(plot.title, loc="left", fontsize=9.5, color=_INK, parse_math=False)
    if plot.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylim(-0.03, 1.03)
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=8)
    _plain(axes)
    return to_png(figure)


def _draw_line(axes: Axes, series: Series, label: str, colour: str) -> None:
    few = len(series.steps) < 20
    axes.plot(
        series.steps, series.values, color=colour, alpha=0.9 if few else 0.25, lw=1, marker="." if few else ""
    )
    if not few:
        axes.plot(series.steps, running_mean(series.values), color=colour, lw=1.8)
    axes.plot([], [], color=colour, label=label.replace("$", r"\$"))


def _plain(axes: Axes) -> None:
    axes.grid(axis="y", color=_GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("step", fontsize=8, color=_INK)
    axes.tick_params(labelsize=8, colors=_INK, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
