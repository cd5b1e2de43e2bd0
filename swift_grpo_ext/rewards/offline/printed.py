"""Scores as a table and a file."""

import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swift_grpo_ext.rewards.contract import Outcome
from swift_grpo_ext.rewards.offline.files import Sample
from swift_grpo_ext.rewards.offline.scoring import TOLERANCE, Scored
from swift_grpo_ext.rewards.reading.answer import ANSWER, last_block
from swift_grpo_ext.rewards.reading.json_text import Json
from swift_grpo_ext.rewards.runtime.ledger import columns_in_words

NAMED = 10  # rows without a score that are named, by reward; the file of scores names all
READ = 5  # golds that are printed as they were read
SHOWN = 120
KEYS = ("reward", "scored", "unscored", "mean", "std", "min", "median", "max", "at_max", "at_min")
FORMATS = {"reward": "{}", "scored": "{}", "unscored": "{}", "at_max": "{:.1%}", "at_min": "{:.1%}"}


def print_all(results: Sequence[Scored], gold: bool) -> None:
    """Print figures, and rows to look at; wide enough for the table where standard output is no terminal."""
    console = Console() if sys.stdout.isatty() else Console(width=120)
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for key in KEYS:
        justify: Literal["left", "right"] = "left" if key == "reward" else "right"
        table.add_column(key.replace("_", " "), justify=justify, overflow="fold")
    for scored in results:
        pairs = _figures(scored).items()
        table.add_row(*("-" if it is None else FORMATS.get(key, "{:.3f}").format(it) for key, it in pairs))
    console.print(table)
    for scored in results if gold else ():
        of = f"{len(scored.scores)} of {len(scored.samples)}"
        _print_lines(f"[bold]{scored.reward.name}[/]: {of} golds read", _readings(scored), console)
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
    """How golds were read: of each form of gold the first row."""
    readings: dict[object, str] = {}
    for sample, outcome in scored.pairs:
        golds = (sample.columns.get(name) for name in scored.reward.gold)
        gold = next((gold for gold in golds if gold is not None), None)
        form = _form(gold)
        if outcome.score is not None and form not in readings and len(readings) < READ:
            answer = last_block(sample.completion, ANSWER) or sample.completion
            read = " ".join(answer.split())[:SHOWN]
            readings[form] = f"row {sample.row}: {str(gold)[:SHOWN]!r} is read as {read}"
    return readings.values()


def _form(gold: Json) -> tuple[str, object]:
    """What golds have in common that are probably read alike: type and length; of a text, its signs."""
    if isinstance(gold, str):
        return "text", re.sub(r"\d+", "0", re.sub(r"[^\W\d]+", "a", gold[:SHOWN]))
    return type(gold).__name__, len(gold) if isinstance(gold, (list, dict)) else 0


def summary(results: Sequence[Scored], gold: bool, files: Sequence[Path]) -> dict[str, object]:
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
    return {"rewards": rewards, "files": [str(file) for file in files]}


def _figures(scored: Scored) -> dict[str, object]:
    """What stands under `KEYS`; None where there is no score."""
    scores = scored.scores
    reward = scored.reward
    counts = [reward.name, len(scores), len(scored.outcomes) - len(scores)]
    measures = (statistics.fmean, statistics.pstdev, min, statistics.median, max)
    figures = [measure(scores) if scores else None for measure in measures]
    for bound in (reward.high, reward.low):
        at = sum(abs(score - bound) <= TOLERANCE for score in scores)
        figures.append(at / len(scores) if scores else None)
    return dict(zip(KEYS, [*counts, *figures], strict=True))


def _in_words(sample: Sample, outcome: Outcome) -> str:
    row_words = ", ".join(columns_in_words(sample.columns))
    return f"row {sample.row}: {_short(outcome)}" + (f" [{row_words}]" if row_words else "")


def _short(outcome: Outcome) -> str:
    reason = " ".join(outcome.reason.split())[:200]
    score_words = [] if outcome.score is None else [f"scores {outcome.score:g}"]
    return ", ".join([*score_words, *([reason] if reason or not score_words else [])])


def write_scores(results: Sequence[Scored], path: Path) -> None:
    """Write one JSON line for each reward and sample: row, reward, score, reason, completion."""
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for scored in results:
            for sample, outcome in scored.pairs:
                line = {"row": sample.row, "reward": scored.reward.name, "score": outcome.score}
                line |= {"reason": outcome.reason, "completion": sample.completion}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
