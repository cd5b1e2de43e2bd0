"""Scores as a table of rows, and as figures."""

import sys
from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swift_grpo_ext.rewards.contract import UNREAD
from swift_grpo_ext.rewards.offline.scoring import Scores

ROWS = 10  # of each reward that the table shows, those with a problem first; the file has all
COLUMNS = ("reward", "row", "gold", "place", "read", "score", "reason")
LONGEST = 120  # characters of a cell
WIDTH = 600  # where standard output is not a terminal


def print_all(results: Sequence[Scores]) -> None:
    """Print the table and a line of figures for each reward."""
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    table = Table(*COLUMNS, box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for scores in results:
        for record in sorted(scores.records, key=scores.wants, reverse=True)[:ROWS]:
            style = "red" if scores.wants(record) else ""
            table.add_row(*(_cell(record[name]) for name in COLUMNS), style=style)
    console.print(table)
    for scores in results:
        for line in _lines_of(scores):
            console.print(escape(line), soft_wrap=True, highlight=False)


def _lines_of(scores: Scores) -> Iterator[str]:
    """Figures, and how many rows are not in the form that the reward reads."""
    name, total = scores.name, len(scores.records)
    numbers = [record["score"] for record in scores.records if record["score"] is not None]
    if scores.of_golds:
        best = total - sum(map(scores.wants, scores.records))
        yield f"{name}: {best} of {total} gold answers get the maximum of {scores.high:g}"
    else:
        means = f", mean {fmean(numbers):.3g}, std {pstdev(numbers):.3g}" if numbers else ""
        yield f"{name}: {len(numbers)} of {total} rows scored{means}"
    unread = [record["reason"] for record in scores.records if record["reason"].startswith(UNREAD)]
    if unread:
        yield f"{name}: {len(unread)} of {total} rows are not in its form, the first {unread[0]}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return escape(" ".join(text.split())[:LONGEST])
