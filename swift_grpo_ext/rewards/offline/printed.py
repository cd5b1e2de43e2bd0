"""Scores as a table and a file."""

import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swift_grpo_ext.rewards.contract import Outcome
from swift_grpo_ext.rewards.offline.files import Sample
from swift_grpo_ext.rewards.offline.scoring import TOLERANCE, Scored
from swift_grpo_ext.rewards.reading.answer import ANSWER, last_block
from swift_grpo_ext.rewards.runtime.ledger import columns_in_words

NAMED = 10  # rows without a score that are named, by reward; the file of scores names all
READ = 5  # golds that are printed as they were read
SHOWN = 120  # characters of a gold
MEASURES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "std": statistics.pstdev,
    "min": min,
    "median": statistics.median,
    "max": max,
}


def print_all(results: Sequence[Scored], gold: bool) -> None:
    """Print figures, and rows to look at; wide enough for the table where standard output is no terminal."""
    console = Console() if sys.stdout.isatty() else Console(width=120)
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("reward", overflow="fold")
    for name in list(_figures(results[0]))[1:]:
        table.add_column(name.replace("_", " "), justify="right", overflow="fold")
    for scored in results:
        table.add_row(*(_cell(name, figure) for name, figure in _figures(scored).items()))
    console.print(table)
    for scored in results if gold else ():
        title = f"[bold]{scored.reward.name}[/]: {len(scored.scores)} of {len(scored.samples)} golds read"
        _print_lines(title, islice(_readings(scored), READ), console)
    for scored in results:
        _print_wanting(scored, gold, console)


def _print_lines(title: str, lines: Iterable[str], console: Console) -> None:
    console.print(title)
    for line in lines:
        console.print(f"  {escape(line)}", soft_wrap=True, highlight=False)


def _print_wanting(scored: Scored, gold: bool, console: Console) -> None:
    """Print the rows without a score; of gold answers those below the maximum, or that there are none."""
    name = scored.reward.name
    high = f"{scored.reward.high:g}"
    wanting = scored.wanting(gold)
    if wanting:
        lines = [_in_words(sample, outcome) for sample, outcome in wanting[:NAMED]]
        if len(wanting) > NAMED:
            reasons = Counter(_short(outcome) for _, outcome in wanting)
            lines += [f"in all {count} x {reason}" for reason, count in reasons.most_common(5)]
        what = f"below the maximum of {high}" if gold else "without a score"
        title = f"[bold]{name}[/]: {len(wanting)} of {len(scored.samples)} rows {what}"
        _print_lines(title, lines, console)
    elif gold and scored.samples:
        console.print(f"{name}: all {len(scored.samples)} gold answers get the maximum of {high}")
    elif gold:
        console.print(f"{name}: the reward table gives it none of the rows")


def _readings(scored: Scored) -> Iterable[str]:
    """How the golds that got a score were read."""
    for sample, outcome in scored.pairs:
        if outcome.score is not None:
            golds = (sample.columns.get(name) for name in scored.reward.gold)
            gold = next((gold for gold in golds if gold is not None), None)
            answer = last_block(sample.completion, ANSWER) or sample.completion
            read = " ".join(answer.split())[:SHOWN]
            yield f"row {sample.row}: {str(gold)[:SHOWN]!r} is read as {read}"


def summary(results: Sequence[Scored], gold: bool, file: Path) -> dict[str, object]:
    """The same figures as JSON, with every row that is named in words otherwise."""
    rewards = [
        {
            **_figures(scored),
            "failed": sum(outcome.failed for outcome in scored.outcomes),
            "rows": [
                {"row": sample.row, "score": outcome.score, "reason": outcome.reason}
                for sample, outcome in scored.wanting(gold)
            ],
        }
        for scored in results
    ]
    return {"rewards": rewards, "files": [str(file)]}


def _figures(scored: Scored) -> dict[str, object]:
    """Figures by their names; None where there is no score."""
    scores = scored.scores
    figures: dict[str, object] = {
        "reward": scored.reward.name,
        "scored": len(scores),
        "unscored": len(scored.outcomes) - len(scores),
    }
    for name, measure in MEASURES.items():
        figures[name] = measure(scores) if scores else None
    for name, bound in (("at_max", scored.reward.high), ("at_min", scored.reward.low)):
        at_bound = [abs(score - bound) <= TOLERANCE for score in scores]
        figures[name] = statistics.fmean(at_bound) if scores else None
    return figures


def _cell(name: str, figure: object) -> str:
    if not isinstance(figure, float):
        return "-" if figure is None else str(figure)
    return f"{figure:.1%}" if name.startswith("at_") else f"{figure:.3f}"


def _in_words(sample: Sample, outcome: Outcome) -> str:
    row_words = ", ".join(columns_in_words(sample.columns))
    return f"row {sample.row}: {_short(outcome)}" + (f" [{row_words}]" if row_words else "")


def _short(outcome: Outcome) -> str:
    reason = " ".join(outcome.reason.split())[:200]
    return reason if outcome.score is None else f"scores {outcome.score:g}" + f", {reason}" * bool(reason)


def write_scores(results: Sequence[Scored], path: Path) -> None:
    """Write one JSON line for each reward and sample: row, reward, score, reason, completion."""
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for scored in results:
            for sample, outcome in scored.pairs:
                line = {"row": sample.row, "reward": scored.reward.name, "score": outcome.score}
                line |= {"reason": outcome.reason, "completion": sample.completion}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
