"""The report of the GRPO run, with the held-out images before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.quickstart.evaluation import accuracy
from swift_grpo_ext.watch.report import (
    Figure,
    Section,
    Tile,
    WrittenReport,
    data_uri,
    thumbnail,
    write_report,
)

_SHOWN = 60


def write_page(
    output: Path, rows: Sequence[dict[str, Any]], before: Sequence[str], after: Sequence[str]
) -> WrittenReport:
    """Write ``report.html`` into the quickstart's folder."""
    first, last = accuracy(before, rows), accuracy(after, rows)
    gain = Figure(
        "held-out accuracy",
        f"{first:.1f} → {last:.1f} %",
        f"{last - first:+.1f} points, {len(rows)} images, greedy",
    )
    tiles = [_tile(row, *answers) for row, *answers in zip(rows[:_SHOWN], before, after, strict=False)]
    section = Section(
        "Held-out images",
        f"The first {len(tiles)} images that no training saw: answer of the warm start → answer after GRPO. "
        "Green: GRPO fixed it. Red: wrong after GRPO.",
        tuple(tiles),
    )
    return write_report(
        output / "grpo",
        output,
        title="Handwritten digits: GRPO after a warm start",
        extra_figures=[gain],
        sections=[section],
    )


def _tile(row: dict[str, Any], before: str, after: str) -> Tile:
    png = thumbnail(row["images"][0])
    gold = row["solution"]
    level = "bad" if after != gold else "good" if before != gold else ""
    return Tile(
        None if png is None else data_uri(png),
        f"{before or '(empty)'} → {after or '(empty)'}, gold {gold}",
        level,
    )
