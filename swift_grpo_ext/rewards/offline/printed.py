"""Scores as a table of rows, as figures, and as a file."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swift_grpo_ext.rewards.offline.scoring import Scores

ROWS = 10  # of each reward that the table shows, those that want something first; the file has all
COLUMNS = ("reward", "row", "gold", "place", "read", "score", "reason")
LONGEST = 120  # characters of a cell
WIDTH = 600  # where standard output is no terminal


def print_all(results: Sequence[Scores]) -> None:
    """Print the table and a line of figures for each reward."""
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    table = Table(*COLUMNS, box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for scores in results:
        wanting = scores.wanting
        others = [record for record in scores.records if record not in wanting[:ROWS]][:ROWS]
        for number, record in enumerate([*wanting, *others][:ROWS]):
            style = "red" if number < len(wanting) else ""
            table.add_row(*(_cell(record[name]) for name in COLUMNS), style=style)
    console.print(table)
    for line in (line for scores in results for line in _lines_of(scores)):
        console.print(escape(line), soft_wrap=True, highlight=False)


def _lines_of(scores: Scores) -> Iterator[str]:
    """Figures, and the rows that want something by their reasons."""
    name, total, wanting, numbers = scores.name, len(scores.records), scores.wanting, scores.numbers
    means = f", mean {fmean(numbers):.3g}, std {pstdev(numbers):.3g}" if numbers else ""
    what = "golds read" if scores.of_golds else "rows scored"
    yield f"{name}: {len(numbers)} of {total} {what}{means}"
    if wanting:
        below = f"below the maximum of {scores.high:g}" if scores.of_golds else "without a score"
        yield f"{name}: {len(wanting)} of {total} rows {below}"
        reasons = Counter(_short(record) for record in wanting)
        yield from (f"  {count} x {reason}" for reason, count in reasons.most_common(5))
    elif scores.of_golds:
        all_best = f"all {total} gold answers get the maximum of {scores.high:g}"
        yield f"{name}: {all_best if total else 'the reward table gives it none of the rows'}"


def write_scores(results: Sequence[Scores], path: Path) -> None:
    """Write one JSON line for each reward and row: the columns of the table, and the completion."""
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for record in (record for scores in results for record in scores.records):
            file.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return escape(" ".join(text.split())[:LONGEST])


def _short(record: dict[str, Any]) -> str:
    reason = " ".join(record["reason"].split())[:200]
    score = record["score"]
    return reason if score is None else f"scores {score:g}" + f", {reason}" * bool(reason)
