"""The curves of runs as PNG images."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.watch.report.charts import Chart, Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# As --run0 and so on in report.css; there are as many as phases.
COLOURS = (
    "#3b82f6",
    "#f59e0b",
    "#10b981",
    "#ec4899",
    "#8b5cf6",
    "#06b6d4",
    "#84cc16",
    "#ef4444",
    "#a16207",
    "#64748b",
    "#14b8a6",
    "#a855f7",
)
_INK, _GRID = "#334155", "#e2e8f0"
# Looked for when a text has characters that matplotlib's own font lacks.
_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "Arial Unicode MS",
)
_SMOOTHING = 0.1  # weight of the newest value in the running mean


def draw_plots(charts: Sequence[Chart], runs: Sequence[str]) -> dict[str, bytes]:
    """Every chart: file name without ending to PNG bytes.

    Args:
        charts: What to draw.
        runs: Names of the runs.
    """
    return {chart.name: _draw(chart, runs) for chart in charts}


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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # an empty box says so as well
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def drawable(text: str) -> str:
    """The text with "?" for what no font can draw: half of a surrogate pair."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def fonts(first: str) -> list[str]:
    """That family, and those of this machine that know more characters."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [first, *(name for name in _FONTS if name in installed)]


def _draw(chart: Chart, runs: Sequence[str]) -> bytes:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(5.2, 2.9))
    # A fixed place: fitting it costs more than drawing. A stack fills its frame, so its legend is beside it.
    axes = figure.add_axes((0.12, 0.16, 0.64 if chart.stacked else 0.86, 0.72))
    labels = [_label(line, chart, runs) for line in chart.lines]
    if chart.stacked:
        stacks = [line.series.values for line in chart.lines]
        colours = (COLOURS * len(stacks))[: len(stacks)]
        axes.stackplot(chart.lines[0].series.steps, stacks, labels=labels, colors=colours, lw=0)
    else:
        for colour, label, line in zip(COLOURS * len(labels), labels, chart.lines, strict=False):
            _draw_line(axes, line, label, colour, exact=chart.exact)
    title = drawable(chart.title)
    axes.set_title(title, loc="left", fontsize=9.5, color=_INK, parse_math=False, family=fonts("sans-serif"))
    if chart.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylim(-0.03, 1.03)
    if len(labels) > 1:
        axes.legend(
            framealpha=0.8,  # curves under it stay in sight
            edgecolor="none",
            ncols=1 if len(labels) < 5 or chart.stacked else 2,
            loc="center left" if chart.stacked else "best",
            bbox_to_anchor=(1, 0.5) if chart.stacked else None,
            reverse=chart.stacked,  # as the layers lie
            prop={"family": fonts("sans-serif"), "size": 7},
        )
    _plain(axes)
    return to_png(figure)


def _label(line: Line, chart: Chart, runs: Sequence[str]) -> str:
    """With several runs the run's name, else what the line is; a dollar would start a formula."""
    name = runs[line.run] if len(runs) > 1 and not chart.stacked else line.label
    return drawable(name).replace("$", r"\$")


def _draw_line(axes: Axes, line: Line, label: str, colour: str, *, exact: bool) -> None:
    steps, values = line.series.steps, line.series.values
    few = len(steps) < 20
    if line.low:
        axes.fill_between(steps, line.low, line.high, color=colour, alpha=0.12, lw=0)
    alone = few or exact
    axes.plot(steps, values, color=colour, alpha=0.9 if alone else 0.25, lw=1, marker="." if few else "")
    if not alone:
        axes.plot(steps, running_mean(values), color=colour, lw=1.8)
    axes.plot([], [], color=colour, label=label)


def _plain(axes: Axes) -> None:
    axes.grid(axis="y", color=_GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("step", fontsize=8, color=_INK)
    axes.tick_params(labelsize=8, colors=_INK, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
