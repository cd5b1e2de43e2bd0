"""How a table of words is written: words by meaning, pairs, phrases, places of numbers, forms.

A table of meanings lists the words for each meaning; a table of pairs has an opening and what closes it, or a
sign and what stands for it. No word has two meanings in one table.

A phrase is a pattern of words: what may stand there (``any_of``, each a regular expression), what must stand
before and behind it, and an example, in which it must be found. Case matters only with ``capitals``.
``{name}`` stands for a part or a phrase of the same table, ``{doubts.negated}`` for one of a table that is
loaded before.
"""

import re
from collections.abc import Callable, Iterable, Mapping
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
    model_validator,
)

Word: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Pairs: TypeAlias = dict[Word, str]

FOLDER = Path(__file__).with_name("tables")
_T = TypeVar("_T", bound="Tables")


def _without_ambiguity(meanings: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    words = [word for listed in meanings.values() for word in listed]
    if twice := {word for word in words if words.count(word) > 1}:
        raise ValueError(f"several meanings of {sorted(twice)}")
    return meanings


Meanings: TypeAlias = Annotated[dict[Word, tuple[Word, ...]], AfterValidator(_without_ambiguity)]


def any_case(pattern: str) -> re.Pattern[str]:
    """A pattern of words, in which capitals are as good as small letters."""
    return re.compile(pattern, re.IGNORECASE)


class Tables(BaseModel):
    """The tables of one file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Phrase(Tables):
    """A pattern as its table writes it."""

    example: Word
    any_of: Annotated[tuple[Word, ...], Field(min_length=1)]
    before: str = ""
    behind: str = ""
    capitals: bool = False


class _Place(Tables):
    """Where a number stands, as its table writes it: what is before the number, and what behind it."""

    example: Word
    left: tuple[Word, ...] = ("",)
    right: tuple[Word, ...] = ("",)


# Every part and phrase that was read: "table.name" to its regular expression.
NAMED: dict[str, str] = {}
# "{negated}", "{doubts.negated}", but not "{0,4}"
_REFERENCE = re.compile(r"(?<!\\)\{((?:[a-z_]+\.)?[a-z_]+)\}")


def _joined(alternatives: Iterable[str], info: ValidationInfo) -> str:
    """A regular expression for any of these, with what is referred to in place."""

    def named(reference: re.Match[str]) -> str:
        return NAMED.get(f"{info.context}.{reference[1]}") or NAMED[reference[1]]

    return _REFERENCE.sub(named, "|".join(alternatives))


def _parts(parts: dict[str, list[str]], info: ValidationInfo) -> dict[str, list[str]]:
    for name, alternatives in parts.items():
        NAMED[f"{info.context}.{name}"] = f"(?:{_joined(alternatives, info)})"
    return parts


def _phrase(written: Any, info: ValidationInfo) -> re.Pattern[str]:
    """The pattern of a phrase.

    Raises:
        ValueError: It is not found in its example.
    """
    phrase = _Phrase.model_validate(written)
    whole = f"{phrase.before}(?:{'|'.join(phrase.any_of)}){phrase.behind}"
    source = _joined([whole], info)
    NAMED[f"{info.context}.{info.field_name}"] = f"(?:{source})"
    pattern = re.compile(source, 0 if phrase.capitals else re.IGNORECASE)
    if not pattern.search(phrase.example):
        raise ValueError(f"not found in its example {phrase.example!r}")
    return pattern


def place(before: str = "", behind: str = "") -> "NumberPlace":
    """Where a number stands: patterns of what is before it, to its start, and of what is behind it."""
    return any_case(before), any_case(behind)


def _place(written: Any, info: ValidationInfo) -> "NumberPlace":
    where = _Place.model_validate(written)
    return place(_joined(where.left, info), _joined(where.right, info))


class Form(Tables):
    """One way to write something: its pattern, what takes its place, and an example of both.

    A replacement that begins with "@" is calculated by who reads the form.
    """

    pattern: re.Pattern[str]
    replacement: str
    example: Word
    becomes: str

    def rewritten(self, text: str, calculated: Mapping[str, Callable[[re.Match[str]], str]] = {}) -> str:
        """The text with this form as it becomes."""
        return self.pattern.sub(calculated.get(self.replacement, self.replacement), text)

    @model_validator(mode="after")
    def _as_in_its_example(self) -> "Form":
        if self.replacement[:1] != "@" and (shown := self.rewritten(self.example)) != self.becomes:
            raise ValueError(f"{self.example!r} becomes {shown!r}")
        return self


Parts: TypeAlias = Annotated[dict[Word, tuple[Word, ...]], BeforeValidator(_parts)]
Phrase: TypeAlias = Annotated[re.Pattern[str], BeforeValidator(_phrase)]
NumberPlace: TypeAlias = Annotated[tuple[re.Pattern[str], re.Pattern[str]], BeforeValidator(_place)]


def load(tables: type[_T], name: str) -> _T:
    """The tables of ``tables/<name>.json``, checked."""
    return tables.model_validate_json((FOLDER / f"{name}.json").read_bytes(), context=name)


def by_word(meanings: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Word to meaning."""
    return {word: meaning for meaning, words in meanings.items() for word in words}
