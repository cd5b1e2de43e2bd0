"""Scores as a table of rows, and as a file."""

import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swift_grpo_ext.rewards.contract import Outcome
from swift_grpo_ext.rewards.offline.files import Sample
from swift_grpo_ext.rewards.offline.scoring import TOLERANCE, Scores
from swift_grpo_ext.rewards.place import last_block

ROWS = 10  # of each reward that the table shows, those that want something first; the file has all
COLUMNS = ("row", "gold", "place", "read", "score", "reason")
LONGEST = 120  # characters of a cell
WIDTH = 600  # where standard output is no terminal


def print_all(results: Sequence[Scores], gold: bool) -> None:
    """Print the table and a line of figures for each reward."""
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    table = Table("reward", *COLUMNS, box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for scores in results:
        wanting = scores.wanting(gold)[:ROWS]
        others = (pair for pair in scores.pairs if pair not in wanting)
        for number, (sample, outcome) in enumerate(chain(wanting, islice(others, ROWS - len(wanting)))):
            line = _line(scores, sample, outcome)
            cells = (_cell(line[name]) for name in ("reward", *COLUMNS))
            table.add_row(*cells, style="red" if number < len(wanting) else "")
    console.print(table)
    for scores in results:
        for text in _lines_of(scores, gold):
            console.print(escape(text), soft_wrap=True, highlight=False)


def _lines_of(scores: Scores, gold: bool) -> Iterable[str]:
    """Figures, and the rows that want something by their reasons."""
    figures = _figures(scores)
    high = f"{scores.high:g}"
    shown = [
        f"{name.replace('_', ' ')} {value:.3g}" for name, value in figures.items() if name in ("mean", "std")
    ]
    count = f"{scores.name}: {len(scores.numbers)} of {len(scores.pairs)}"
    yield ", ".join([f"{count} golds read" if gold else f"{count} rows scored", *shown])
    wanting = scores.wanting(gold)
    if wanting:
        below = f"below the maximum of {high}" if gold else "without a score"
        yield f"{scores.name}: {len(wanting)} of {len(scores.pairs)} rows {below}"
        reasons = Counter(_short(outcome) for _, outcome in wanting)
        yield from (f"  {count} x {reason}" for reason, count in reasons.most_common(5))
    elif gold and scores.pairs:
        yield f"{scores.name}: all {len(scores.pairs)} gold answers get the maximum of {high}"
    elif gold:
        yield f"{scores.name}: the reward table gives it none of the rows"


def summary(results: Sequence[Scores], gold: bool, file: Path) -> dict[str, object]:
    """The figures, and every row that wants something, as JSON can carry them."""
    rewards = [
        {
            **_figures(scores),
            "failed": sum(outcome.failed for _, outcome in scores.pairs),
            "rows": [_line(scores, *pair) for pair in scores.wanting(gold)],
        }
        for scores in results
    ]
    return {"rewards": rewards, "files": [str(file)]}


def write_scores(results: Sequence[Scores], path: Path) -> None:
    """Write one JSON line for each reward and sample: the columns of the table, and the completion."""
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for scores in results:
            for sample, outcome in scores.pairs:
                line = {**_line(scores, sample, outcome), "completion": sample.completion}
                file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def _line(scores: Scores, sample: Sample, outcome: Outcome) -> dict[str, object]:
    golds = (sample.columns.get(name) for name in scores.gold)
    return {
        "reward": scores.name,
        "row": sample.row,
        "gold": next((gold for gold in golds if gold is not None), None),
        "place": last_block(sample.completion) or sample.completion,
        "read": outcome.read,
        "score": outcome.score,
        "reason": outcome.reason,
    }


def _figures(scores: Scores) -> dict[str, object]:
    """Figures by their names; no mean, std or share where there is no score."""
    numbers = scores.numbers
    figures: dict[str, object] = {"reward": scores.name, "scored": len(numbers)}
    figures["unscored"] = len(scores.pairs) - len(numbers)
    if numbers:
        at_maximum = [number >= scores.high - TOLERANCE for number in numbers]
        figures |= {"mean": statistics.fmean(numbers), "std": statistics.pstdev(numbers)}
        figures["at_max"] = statistics.fmean(at_maximum)
    return figures


def _cell(value: object) -> str:
    if value is None:
        return "-"
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return escape(" ".join(text.split())[:LONGEST])


def _short(outcome: Outcome) -> str:
    reason = " ".join(outcome.reason.split())[:200]
    return reason if outcome.score is None else f"scores {outcome.score:g}" + f", {reason}" * bool(reason)
