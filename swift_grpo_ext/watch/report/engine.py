"""Rollout engine against trainer over a run: the worst turns, and figures by turn, image and length."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from swift_grpo_ext.watch.journal import read_events
from swift_grpo_ext.watch.report.page_data import data_uri, thumbnail
from swift_grpo_ext.watch.report.run import Run

WORST = 3  # turns that are shown with their picture
_LENGTHS = (16, 64, 256, 1024, 4096)  # tokens of a turn: upper ends of the rows of a table
_Key = tuple[int, str]
"""Place of a row in its table, and its label."""


@dataclass(frozen=True)
class ComparedTurn:
    """One turn of a completion that engine and trainer were compared on."""

    step: int
    row: str  # its name
    turn: int  # counted from 1
    tokens: int  # that were sampled in it
    compared: float  # of them
    images: str  # sizes in pixels
    image: str  # path of the newest one that it saw; empty if there is none
    mean: float  # of |d| in nats, d the difference of two log-probs of a token
    ratio: float  # mean of exp|d|
    worst: str  # the token that differs most, in words

    @property
    def picture(self) -> str | None:
        """The image as an address; None without one."""
        small = thumbnail(self.image) if self.image else None
        return None if small is None else data_uri(small)


_TURN = TypeAdapter(ComparedTurn)


@dataclass(frozen=True)
class TableRow:
    """What the turns of one kind have in common."""

    label: str
    turns: int
    mean: float  # of |d| in nats, over the tokens
    ratio: float  # mean of exp|d|


@dataclass(frozen=True)
class EngineFigures:
    """The section of the report on one run."""

    worst: tuple[ComparedTurn, ...]
    tables: Mapping[str, Sequence[TableRow]]  # by what their rows differ in


def engine_figures(run: Run) -> EngineFigures | None:
    """What the engine check of a run compared, over all of its steps; None if it never did."""
    turns = [turn for note in read_events(run.folder, ("note",)) for turn in _turns(note)]
    if not turns:
        return None
    worst = sorted(turns, key=lambda turn: turn.mean, reverse=True)[:WORST]
    tables = {name: _table(turns, key) for name, key in _TABLES.items()}
    return EngineFigures(tuple(worst), tables)


def _turns(note: Mapping[str, Any]) -> Iterator[ComparedTurn]:
    """The turns of a note; one of another form is left out."""
    turns = note.get("turns")
    for turn in turns if isinstance(turns, list) else ():
        with suppress(ValidationError, TypeError):
            yield _TURN.validate_python({"step": note.get("step"), **turn})


def _by_turn(turn: ComparedTurn) -> _Key:
    return turn.turn, str(turn.turn)


def _by_image(turn: ComparedTurn) -> _Key:
    return len(turn.images), turn.images or "no image, or its size is not known"


def _by_length(turn: ComparedTurn) -> _Key:
    end = next((end for end in _LENGTHS if turn.tokens <= end), 0)
    return end or 2 * _LENGTHS[-1], f"up to {end:,}" if end else f"more than {_LENGTHS[-1]:,}"


_TABLES = {"turn": _by_turn, "images (pixels)": _by_image, "tokens of a turn": _by_length}


def _table(turns: Sequence[ComparedTurn], key: Callable[[ComparedTurn], _Key]) -> list[TableRow]:
    kinds = defaultdict[_Key, list[ComparedTurn]](list)
    for turn in turns:
        kinds[key(turn)].append(turn)
    return [_row(label, kinds[place, label]) for place, label in sorted(kinds)]


def _row(label: str, turns: Sequence[ComparedTurn]) -> TableRow:
    tokens = sum(turn.compared for turn in turns) or 1.0
    mean = sum(turn.mean * turn.compared for turn in turns) / tokens
    return TableRow(label, len(turns), mean, sum(turn.ratio * turn.compared for turn in turns) / tokens)
