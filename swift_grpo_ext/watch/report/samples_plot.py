"""Sampled groups as one PNG: image, prompt, completions, rewards, advantages."""

from __future__ import annotations

import io
import math
import re
import textwrap
from typing import TYPE_CHECKING

from swift_grpo_ext.watch.report.gallery import Row, distinct, shown_groups
from swift_grpo_ext.watch.report.images import thumbnail
from swift_grpo_ext.watch.report.plots import drawable, fonts, to_png
from swift_grpo_ext.watch.report.run import Group, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GROUPS, _COLUMNS, _ROWS = 6, 2, 6
_WIDTH = 46  # characters
_SPECIAL_TOKEN = re.compile(r"<\|[a-z_]{1,40}\|>")


def draw_samples(run: Run) -> bytes | None:
    """PNG of groups from the first to the last step; None if the run logged no completions."""
    from matplotlib.figure import Figure

    groups = shown_groups(run, _GROUPS, 1)
    if not groups:
        return None
    lines = -(-len(groups) // _COLUMNS)
    figure = Figure(figsize=(5.4 * _COLUMNS, 2.1 * lines))
    figure.subplots_adjust(left=0.02, right=0.98, bottom=0.03, top=1 - 0.12 / lines, hspace=0.3, wspace=0.1)
    grid = figure.subplots(lines, 2 * _COLUMNS, squeeze=False, width_ratios=[1, 2.2] * _COLUMNS)
    axes: list[Axes] = list(grid.flat)
    for each in axes:
        each.axis("off")
    for number, group in enumerate(groups):
        _draw_image(axes[2 * number], group)
        _draw_text(axes[2 * number + 1], group)
    return to_png(figure)


def plain_prompt(prompt: str) -> str:
    """The last user turn of a prompt without special tokens."""
    turn = prompt.rpartition("user\n")[2].partition("<|im_end|>")[0]
    return " ".join(_SPECIAL_TOKEN.sub(" ", turn).split())


def _draw_image(axes: Axes, group: Group) -> None:
    from PIL import Image

    axes.set_title(f"step {group.step}", fontsize=9, loc="left")
    png = thumbnail(group.images[0]) if group.images else None
    if png is None:
        axes.text(0.5, 0.5, "no image", ha="center", fontsize=8, color="0.5")
        return
    with Image.open(io.BytesIO(png)) as image:
        axes.imshow(image, interpolation="nearest")


def _draw_text(axes: Axes, group: Group) -> None:
    lines = textwrap.wrap(plain_prompt(group.prompt), _WIDTH)[:3]
    if group.solution:
        lines.append(f"gold: {group.solution}"[:_WIDTH])
    rows = distinct(group.samples)
    lines += ["", *(_row(row) for row in rows[:_ROWS])]
    if len(rows) > _ROWS:
        lines.append(f"and {len(rows) - _ROWS} more")
    text = drawable("\n".join(lines))
    axes.text(0, 1, text, va="top", fontsize=7.5, family=fonts("monospace"), parse_math=False)


def _row(row: Row) -> str:
    text = " ".join(repr(row.text[:200])[1:-1].split()) or "(empty)"
    text = text if len(text) <= 20 else text[:19] + "…"
    scored = [value for _, value in row.rewards if value is not None and math.isfinite(value)]
    reward = f"{sum(scored):.4g}" if scored else "none"
    advantage = "none" if row.advantage is None else f"{row.advantage:+.2f}"
    return f"{row.count} x {text:<20} r {reward}  A {advantage}"
