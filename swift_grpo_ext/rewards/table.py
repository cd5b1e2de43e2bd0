"""Tables read from images, as HTML or Markdown."""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias, TypeVar

from swift_grpo_ext.rewards.contract import Columns, Outcome, Unread, Unscorable, reward
from swift_grpo_ext.rewards.place import answer_of, gold_string
from swift_grpo_ext.rewards.values.text import edit_similarity

GOLD = ("solution", "table", "answer")
MAX_GOLD_CELLS = 400

# A tag, and what stands up to the next one.
_TAG = re.compile(
    r"<(/?)(table|tr|td|th)\b([^<>]{0,512})>((?:(?!</?(?:table|tr|td|th)\b).)*)", re.IGNORECASE | re.DOTALL
)
_OTHER_TAG = re.compile(r"</?[A-Za-z][^<>]{0,256}>")
_SPAN = re.compile(r"\b(colspan|rowspan)\s{0,4}=\s{0,4}[\"']?(\d{1,3})", re.IGNORECASE)
_RULE = re.compile(r"[\s|:-]*\Z")
_BAR = re.compile(r"(?<!\\)\|")
_LAST_BAR = re.compile(r"(?<!\\)\|\Z")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Cell:
    """One cell: its text with single spaces, and how many columns and rows it covers."""

    text: str
    columns: int = 1
    rows: int = 1


Table: TypeAlias = list[list[Cell]]


def parse_table(text: str) -> Table:
    """The rows of an HTML or Markdown table; empty if the text holds none."""
    return _from_html(text) if _TAG.search(text) else _from_markdown(text)


def _from_html(text: str) -> Table:
    table: Table = []
    for closing, name, attributes, content in _TAG.findall(text):
        if closing or name.lower() == "table":
            continue
        if name.lower() == "tr" or not table:
            table.append([])
        if name.lower() != "tr":
            spans = {key.lower(): int(number) for key, number in _SPAN.findall(attributes)}
            table[-1].append(Cell(_clean(content), spans.get("colspan", 1), spans.get("rowspan", 1)))
    return [row for row in table if row]


def _from_markdown(text: str) -> Table:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if "|" in line and not ("-" in line and _RULE.match(line))]
    rows = [_BAR.split(_LAST_BAR.sub("", line.removeprefix("|"))) for line in lines]
    return [[Cell(_clean(cell.replace("\\|", "|"))) for cell in row] for row in rows]


def _clean(content: str) -> str:
    return " ".join(html.unescape(_OTHER_TAG.sub(" ", content)).split())


def size(table: Table) -> int:
    """Number of nodes of the table's tree: itself, its rows, its cells."""
    return 1 + len(table) + sum(map(len, table))


def table_similarity(predicted: Table, gold: Table) -> float:
    """1 minus the edit distance of the two trees over the size of the greater, 0..1.

    A node costs 1, a changed cell the edit distance of its text, or 1 if it covers other rows or columns.
    """

    @cache
    def distance(one: Cell, other: Cell) -> float:
        same = (one.columns, one.rows) == (other.columns, other.rows)
        return 1.0 - edit_similarity(one.text, other.text) if same else 1.0

    def row_distance(one: Sequence[Cell], other: Sequence[Cell]) -> float:
        return _alignment(one, other, lambda cell: 1.0, distance)

    edits = _alignment(predicted, gold, lambda row: 1.0 + len(row), row_distance)
    return max(0.0, 1.0 - edits / max(size(predicted), size(gold)))


def _alignment(
    one: Sequence[_T], other: Sequence[_T], gap: Callable[[_T], float], change: Callable[[_T, _T], float]
) -> float:
    """Least cost of turning one sequence into the other (Levenshtein with weights)."""
    previous = [0.0]
    for item in other:
        previous.append(previous[-1] + gap(item))
    for item in one:
        current = [previous[0] + gap(item)]
        for index, counterpart in enumerate(other):
            moved = min(previous[index + 1] + gap(item), current[index] + gap(counterpart))
            current.append(min(moved, previous[index] + change(item, counterpart)))
        previous = current
    return previous[-1]


@reward(gold=GOLD, cost="process", gold_text=lambda row, **_: gold_string(row, GOLD))
def table(completion: str, columns: Columns) -> Outcome:
    """Structure and content of a table read from an image, 0..1: one minus a normalised tree edit distance.

    HTML (``table``, ``tr``, ``td``, ``th``, ``colspan``, ``rowspan``; everything else is ignored) or
    Markdown, fenced or not; the gold may be in the other form.

    Gold: ``solution`` (or ``table``, ``answer``): the table in HTML or Markdown, up to 400 cells.
    Raises:
        Unscorable: No gold, no table in it, or more than 400 cells.
        Unread: The answer is not a table, or one of more than twice the gold's cells: 0.
    Rises with: Fewer edits of rows, cells and characters.
    Gaming:
        - Surplus rows and cells: each costs an edit (test_surplus_cells_lower_the_score); a table with more
          than twice the gold's cells scores 0 (test_a_flood_of_cells_scores_nothing).
    Source: TEDS (arXiv 1911.10683); here rows are aligned with rows only, and heads and bodies are not nodes,
        so the distance is never below the unrestricted one.
    Example:
        >>> gold = "<table><tr><td>a</td><td>b</td></tr></table>"
        >>> get_reward("ext_table")("<table><tr><td>a</td><td>c</td></tr></table>", {"table": gold})
        0.75
    """
    written = gold_string(columns, GOLD)
    gold = parse_table(written)
    cells = sum(map(len, gold))
    if not 0 < cells <= MAX_GOLD_CELLS:
        raise Unscorable(f"gold holds {cells} table cells, need 1 to {MAX_GOLD_CELLS}")
    answer = answer_of(completion, "fenced")
    predicted = parse_table(answer)
    predicted_cells = sum(map(len, predicted))
    if not predicted_cells:
        raise Unread(answer, "table (HTML or Markdown)")
    if predicted_cells > 2 * cells + 16:
        raise Unread(f"a table of {predicted_cells} cells, where {cells} are expected")
    return Outcome.of(table_similarity(predicted, gold), answer, written)
