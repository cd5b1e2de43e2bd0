"""Characters of web pages and word processors in a command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

INVISIBLE = re.compile("[\u00a0\u200b\u200c\u200d\u2060\u3000\ufeff]")
DASHES, _QUOTES = "–—―−", "“”‘’"


@dataclass(frozen=True)
class Refusal:
    """An argument that the host's parser refuses: its message, the argument, and the fix."""

    message: str
    where: str
    fix: str


def hides(word: str) -> bool:
    """An option that a copied page has glued to its value, or to nothing, with a blank that is none."""
    return bool(INVISIBLE.search(word)) and INVISIBLE.sub("", word).startswith("-")


def invisible(words: Sequence[str]) -> Iterator[Refusal]:
    """Blanks of web pages and word processors, which the shell takes for letters."""
    for word in words:
        if hides(word):
            sign = f"U+{ord(INVISIBLE.search(word)[0]):04X}"  # type: ignore[index]
            fix = "type the blanks of this line again"
            yield Refusal(f"the invisible character {sign} is part of the word", word, fix)


def typographic(words: Sequence[str]) -> Iterator[Refusal]:
    """Dashes and quotes of a word processor."""
    for word in words:
        if word[:1] in DASHES and len(word) > 1:
            yield Refusal("a long dash begins no option", word, f"--{word.lstrip(DASHES + '-')}")
        elif word and (word[0] in _QUOTES or word[-1] in _QUOTES):
            yield Refusal("typographic quotes are part of the value", word, f"'{word.strip(_QUOTES)}'")
