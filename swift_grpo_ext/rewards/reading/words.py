"""What action spaces, data sets and languages call things: the tables of ``tables/*.json``, by their schema.

A table of meanings lists the words for each meaning; a table of pairs has an opening and what closes it, or a
sign and what stands for it. No word has two meanings in one table.
"""

import re
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

Word: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Pairs: TypeAlias = dict[Word, str]

_FOLDER = Path(__file__).with_name("tables")
_T = TypeVar("_T", bound="_Tables")


def _without_ambiguity(meanings: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    words = [word for listed in meanings.values() for word in listed]
    if twice := {word for word in words if words.count(word) > 1}:
        raise ValueError(f"several meanings of {sorted(twice)}")
    return meanings


Meanings: TypeAlias = Annotated[dict[Word, tuple[Word, ...]], AfterValidator(_without_ambiguity)]


class _Tables(BaseModel):
    """The tables of one file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ActionWords(_Tables):
    """Actions on a screen."""

    kinds: Meanings  # the kind, and behind a space the text that the word says by itself: "scroll up"
    arguments: Meanings  # what an argument holds
    keys: Meanings  # of a keyboard
    statuses: Meanings  # at the end of a task
    directions: Meanings
    opposite: Pairs  # of a direction
    buttons: Meanings  # the click that each button of a mouse makes
    times: Pairs  # how often it is pressed, to the click that this makes
    empty_texts: tuple[Word, ...]  # what data sets write where nothing is typed
    text_of: (
        Pairs  # kinds of action, to the arguments that hold their text in place of ``text``; "-" if none does
    )


class ToolWords(_Tables):
    """Tool calls."""

    noise: tuple[Word, ...]  # before every tag
    quotes: tuple[Word, ...]  # Gemma's
    names: tuple[Word, ...]  # keys of the tool's name
    arguments: tuple[Word, ...]  # keys of what it is given


class PlaceWords(_Tables):
    """Boxes and points with keys."""

    keys: Meanings
    coordinates: Meanings  # one number
    box_shapes: tuple[tuple[Word, ...], ...]  # coordinates that make a box, the first that are there count
    point_shapes: tuple[tuple[Word, ...], ...]
    nothing: tuple[Word, ...]  # what a gold says where nothing is there


class QuantityWords(_Tables):
    """What stands behind a number."""

    units: Meanings  # by dimension; behind "=" what pint calls the word if not so, or how many of it: 0.5*kg
    symbols: Pairs  # of units whose case counts, to their dimension; each may have an SI prefix
    prefixes: Word  # a character each
    scales: Meanings  # the factor
    numbers: Meanings  # words of European languages, by value
    classifiers: Word  # characters that stand between a Chinese or Japanese number and what is counted
    translations: Meanings  # what tells things apart, by its English word
    nameless: Word  # words of a question how many, or of its answer, that name nothing


class PolarityWords(_Tables):
    """Yes and no."""

    words: Meanings


class OptionWords(_Tables):
    """Multiple choice."""

    places: Meanings  # which place in the list stands for which letter


class SpanWords(_Tables):
    """Keys of moments of a video."""

    starts: tuple[Word, ...]
    ends: tuple[Word, ...]
    holders: tuple[Word, ...]  # words in keys of what holds moments


class Marks(_Tables):
    """Marks that models put around parts of a completion: the opening one, and what closes it."""

    thinking: Pairs
    answers: Pairs
    ends: tuple[Word, ...]  # of a turn
    keys: tuple[Word, ...]  # in JSON, of the answer; the first that is there counts


class Formats(_Tables):
    """Formats that prompts ask for.

    In turn what stands before a mark, and the mark; last what stands behind them all. "" is white space,
    "..." something visible, which is a block, "?" anything.
    """

    grammars: dict[str, tuple[str, ...]]


class Signs(_Tables):
    """Signs."""

    wrapping: Pairs  # opening and closing, around a whole answer
    latex: Pairs  # a sign of Unicode and what it is in LaTeX
    typed: tuple[tuple[Word, str], ...]  # patterns of short formulas in LaTeX, and how people type them


def _load(tables: type[_T], name: str) -> _T:
    return tables.model_validate_json((_FOLDER / f"{name}.json").read_bytes())


def any_case(pattern: str) -> re.Pattern[str]:
    """A pattern of words, in which capitals are as good as small letters."""
    return re.compile(pattern, re.IGNORECASE)


def by_word(meanings: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Word to meaning."""
    return {word: meaning for meaning, words in meanings.items() for word in words}


ACTIONS = _load(ActionWords, "actions")
DIALECTS = _load(Marks, "dialects")
FORMATS = _load(Formats, "formats")
OPTIONS = _load(OptionWords, "options")
PLACES = _load(PlaceWords, "places")
POLARITY = _load(PolarityWords, "polarity")
QUANTITIES = _load(QuantityWords, "quantities")
SPANS = _load(SpanWords, "spans")
TOOLS = _load(ToolWords, "tools")
WRITING = _load(Signs, "writing")
