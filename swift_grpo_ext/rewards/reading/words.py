"""What action spaces, data sets and languages call things: the tables of ``tables/*.json``, by their schema.

A table of meanings lists the words for each meaning; a table of pairs has an opening and what closes it, or a
sign and what stands for it. No word has two meanings in one table.

A phrase is a pattern of words: what may stand there (``any_of``, each a regular expression), what must stand
before and behind it, and an example, in which it must be found. Case matters only with ``capitals``.
``{name}`` stands for a part or a phrase of the same table, ``{doubts.negated}`` for one of a table that is
loaded before.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
)

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


class _Phrase(_Tables):
    """A pattern as its table writes it."""

    example: Word
    any_of: Annotated[tuple[Word, ...], Field(min_length=1)]
    before: str = ""
    behind: str = ""
    capitals: bool = False


class _Place(_Tables):
    """Where a number stands, as its table writes it: what is before the number, and what behind it."""

    example: Word
    left: tuple[Word, ...] = ("",)
    right: tuple[Word, ...] = ("",)


# Every part and phrase that was read: "table.name" to its regular expression.
_NAMED: dict[str, str] = {}
# "{negated}", "{doubts.negated}", but not "{0,4}"
_REFERENCE = re.compile(r"(?<!\\)\{((?:[a-z_]+\.)?[a-z_]+)\}")


def _joined(alternatives: Iterable[str], table: str) -> str:
    """A regular expression for any of these, with what is referred to in place."""

    def named(reference: re.Match[str]) -> str:
        return _NAMED.get(f"{table}.{reference[1]}") or _NAMED[reference[1]]

    return _REFERENCE.sub(named, "|".join(alternatives))


def _parts(parts: dict[str, list[str]], info: ValidationInfo) -> dict[str, list[str]]:
    for name, alternatives in parts.items():
        _NAMED[f"{info.context}.{name}"] = f"(?:{_joined(alternatives, str(info.context))})"
    return parts


def _phrase(written: Any, info: ValidationInfo) -> re.Pattern[str]:
    """The pattern of a phrase.

    Raises:
        ValueError: It is not found in its example.
    """
    phrase = _Phrase.model_validate(written)
    table = str(info.context)
    around = [_joined([part], table) for part in (phrase.before, phrase.behind)]
    source = f"(?:{_joined(phrase.any_of, table)})".join(around)
    _NAMED[f"{table}.{info.field_name}"] = f"(?:{source})"
    pattern = re.compile(source, 0 if phrase.capitals else re.IGNORECASE)
    if not pattern.search(phrase.example):
        raise ValueError(f"not found in its example {phrase.example!r}")
    return pattern


def place(before: str = "", behind: str = "") -> "NumberPlace":
    """Where a number stands: patterns of what is before it, to its start, and of what is behind it."""
    return any_case(before), any_case(behind)


def _place(written: Any, info: ValidationInfo) -> "NumberPlace":
    where = _Place.model_validate(written)
    return place(_joined(where.left, str(info.context)), _joined(where.right, str(info.context)))


Parts: TypeAlias = Annotated[dict[Word, tuple[Word, ...]], BeforeValidator(_parts)]
Phrase: TypeAlias = Annotated[re.Pattern[str], BeforeValidator(_phrase)]
NumberPlace: TypeAlias = Annotated[tuple[re.Pattern[str], re.Pattern[str]], BeforeValidator(_place)]


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

    thought: Phrase  # a line in which no action is
    acted: Phrase  # what stands before an action
    asked_at_end: Phrase
    asked: Phrase  # before an action that is only asked for


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
    parts: Parts
    conjunction: Phrase  # before a name
    first_words: Phrase  # of a sentence, before a name
    last_words: Phrase  # between a name and its place
    no_label: Phrase  # words that are no name
    between_corners: Phrase
    as_one_box: Phrase  # between two corners, where points may be listed
    listed: Phrase  # between two places of one name


class QuantityWords(_Tables):
    """What stands behind a number."""

    # By dimension and size in its base unit; behind a space what is added, where a scale has its own zero.
    units: dict[Word, Meanings]
    prefixes: dict[Word, float]
    symbols: Pairs  # of units whose case counts, to their dimension; each may have a prefix
    scales: Meanings  # the factor
    numbers: Meanings  # words of European languages, by value
    classifiers: Word  # characters that stand between a Chinese or Japanese number and what is counted
    translations: Meanings  # what tells things apart, by its English word
    nameless: Word  # words of a question how many, or of its answer, that name nothing


class PolarityWords(_Tables):
    """Yes and no. All but the words are compared with texts in lower case."""

    words: Meanings
    parts: Parts
    judged: Phrase  # what is said of a claim: whether it is denied, and whether it is true
    skipped: Phrase  # between an announcement and the word
    exists: Phrase  # that there is something, or that there is not
    negated: Phrase
    lead: Phrase  # of a sentence, before what it states
    plain: Phrase  # one short sentence, as good a yes as its negation is a no
    double: Phrase  # a negation of a negation
    opinion: Phrase  # before the word
    joint: Phrase  # between the two words of a hedge
    no_thing: Phrase  # the word is part of something else
    both: Phrase
    denied: Phrase  # the word itself
    conceded: Phrase
    said: Phrase  # a yes or a no, and the sentence behind it
    not_sure: Phrase
    neither: Phrase


class OptionWords(_Tables):
    """Multiple choice."""

    places: Meanings  # which place in the list stands for which letter
    parts: Parts
    leading: Phrase  # the letter before its option's text
    several: Phrase  # letters and nothing else
    explained: Phrase  # where reasons begin
    chosen: Phrase  # what announces a choice
    before_letter: Phrase  # between an announcement and the letter
    letters: Phrase  # those that an announcement names
    is_article: Phrase  # the letter is the word "a"
    rejecting: Phrase  # before an option
    rejected: Phrase
    wrong: Phrase  # behind letters
    echoed: Phrase  # the question again, and options that are marked as wrong
    between: Phrase  # options that are chosen together
    is_right: Phrase
    closing: Phrase  # the last words, which name a letter
    opening: Phrase  # a letter, and reasons
    # Where a letter is chosen: behind a sign or words that lead to it, unless it is but described ("option B
    # is about a cat"), or before words that say that it is right ("only B fits").
    placed: Phrase
    denying: Phrase
    counted: Phrase  # an option by its place in the list


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


class StatementPhrases(_Tables):
    """How answers are stated in prose."""

    parts: Parts
    aside: Phrase  # what is said beside a number
    explanation: Phrase  # a heading behind which no answer is given
    label: Phrase  # what announces an answer
    unsure: Phrase  # words of somebody who does not commit to an answer
    corrected: Phrase  # words after which a second statement takes the first one back, or concludes
    taken_back: Phrase  # with which a writer takes back what stands before


class DoubtPhrases(_Tables):
    """Who will not or cannot answer, and who denies a value: English, Spanish, French, German, Chinese."""

    parts: Parts
    refused: Phrase  # who cannot look, or will not answer
    request: Phrase  # who has nothing to look at
    refusing: Phrase  # a refusal with all that it says
    negation: Phrase  # what takes a value out
    negated: Phrase  # right before a value
    rejected: Phrase  # right behind a value
    denied_clause: Phrase  # somewhere before a value in its clause


class AssertionPhrases(_Tables):
    """What a text does not assert, though it says it; `reading.assertion` has the order."""

    parts: Parts
    turn: Phrase  # where a clause ends, and a new one begins
    asks: Phrase  # the end of a sentence that asks
    suspended: Phrase  # in lower case: with which a clause asserts nothing
    hearsay: Phrase  # what others say, up to a "but"
    embedded: Phrase  # what stands under words that do not assert it, up to a "but"
    retracted: Phrase  # a sentence, and words behind it that take it back
    withdrawn: Phrase  # in lower case: takes back all that stands before it


class AnswerPhrases(_Tables):
    """Around a short answer."""

    parts: Parts
    between_boxes: Phrase
    sentence: Phrase  # the start of a short sentence that ends in what it says
    led_in: Phrase  # before that
    left_open: Phrase  # with which a sentence says something else, or more than one thing
    preamble: Phrase
    last_word: Phrase  # behind that


class NumberPhrases(_Tables):
    """Which number a text means."""

    parts: Parts
    after_copula: NumberPlace
    concluded: NumberPlace
    but: Phrase
    aside: Phrase  # behind the number that is meant
    asked_in: Phrase  # a scale or a unit
    choice: Phrase  # between two numbers of which either may be meant
    joined: Phrase  # between two ends of a range
    changed: Phrase  # before a range that is none
    year: NumberPlace
    between: Phrase
    clause: Phrase  # up to the end of what is said of one number
    bound: Phrase
    not_stated: tuple[NumberPlace, ...]


class CountPhrases(_Tables):
    """How many there are."""

    parts: Parts
    nothing: Phrase
    single: Phrase
    not_one: Phrase
    couple: Phrase
    time: Phrase  # which is no count
    none_first: Phrase
    key: Phrase  # of JSON
    totals: tuple[NumberPlace, ...]
    first_thing: NumberPlace  # of several, which is asked for where no question says so
    no: Phrase  # before a thing
    beside: tuple[NumberPlace, ...]  # what is near the count but is not it, and what only numbers an object


class AbsencePhrases(_Tables):
    """That a place is not there, or that nothing is."""

    empty: Phrase
    something: Phrase
    negated: Phrase
    denied_place: Phrase
    either: Phrase
    not_it: Phrase  # the name of a place, which says that it is not


def _load(tables: type[_T], name: str) -> _T:
    return tables.model_validate_json((_FOLDER / f"{name}.json").read_bytes(), context=name)


def any_case(pattern: str) -> re.Pattern[str]:
    """A pattern of words, in which capitals are as good as small letters."""
    return re.compile(pattern, re.IGNORECASE)


def by_word(meanings: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Word to meaning."""
    return {word: meaning for meaning, words in meanings.items() for word in words}


DIALECTS = _load(Marks, "dialects")
FORMATS = _load(Formats, "formats")
QUANTITIES = _load(QuantityWords, "quantities")
SPANS = _load(SpanWords, "spans")
TOOLS = _load(ToolWords, "tools")
WRITING = _load(Signs, "writing")
_NAMED["quantities.classifiers"] = QUANTITIES.classifiers
# In the order in which phrases refer to others.
STATEMENTS = _load(StatementPhrases, "statements")
DOUBTS = _load(DoubtPhrases, "doubts")
ASSERTIONS = _load(AssertionPhrases, "assertions")
ANSWERS = _load(AnswerPhrases, "answers")
NUMBERS = _load(NumberPhrases, "numbers")
COUNTS = _load(CountPhrases, "counts")
ABSENCES = _load(AbsencePhrases, "absences")
ACTIONS = _load(ActionWords, "actions")
OPTIONS = _load(OptionWords, "options")
PLACES = _load(PlaceWords, "places")
POLARITY = _load(PolarityWords, "polarity")
