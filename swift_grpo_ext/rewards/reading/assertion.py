"""What a text asserts: what it states itself, not what it asks, supposes, heard, doubts or takes back.

One decision for all rewards, in the order of `asserted`, by the phrases of ``tables/assertions.json``:

1. ``withdrawn`` takes back all that stands before it ("scratch that"), ``retracted`` the sentence before it.
2. A sentence that asks asserts nothing (``asks``); nor does a clause with words that suspend it
   (``suspended``): conditions, guesses, possibilities, examples, what one thought at first, what is usually
   so, or was so at another time; and what a first person says of itself but sees, counts, works out or
   chooses. A clause is a part of a sentence, up to a "but" or ";" or ", so".
3. Words that embed what follows them (``hearsay``, ``embedded``: "she says that", "it is false that", "it
   might be") leave out the rest of their clause.
4. Refusals (``tables/doubts.json``) are left out.

What denies one value ("not 5", "5 is wrong") is asked where the value stands: `is_denied`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from swift_grpo_ext.rewards.reading.statement import folded, taken_back
from swift_grpo_ext.rewards.reading.words import ASSERTIONS, DOUBTS, STATEMENTS

T = TypeVar("T")
MAX_PROSE = 4_000

# "Is it 4.5?": one sentence with the marks that end it
_SENTENCE = re.compile(r"(?:[^.!?。！？\n]|\.(?!\s|\Z)|(?<=\b[eE]\.[gG])\.|(?<=\bi\.e)\.)*[.!?。！？\n]*")


def without_questions(text: str) -> str:
    """The text without what it asks, supposes, or heard from others; empty if nothing is left."""
    sentences = (
        sentence for sentence in _SENTENCE.findall(text) if not ASSERTIONS.asks.search(sentence[-40:])
    )
    clauses = (clause for sentence in sentences for clause in ASSERTIONS.turn.split(sentence))
    return ASSERTIONS.hearsay.sub(
        " ", "".join(part for part in clauses if not ASSERTIONS.suspended.search(part.casefold()))
    ).strip()


@lru_cache(maxsize=32)
def asserted(text: str, refusals: bool = False) -> str:
    """The text without what it does not assert, or (unless these are kept) refuses.

    Of a long text the last `MAX_PROSE` characters are looked at.
    """
    end = text[-MAX_PROSE:]
    withdrawn = [mark.end() for mark in ASSERTIONS.withdrawn.finditer(folded(end))]
    end = without_questions(end[max(withdrawn, default=0) :])
    if not refusals:
        end = DOUBTS.refusing.sub(" ", ASSERTIONS.embedded.sub(" ", ASSERTIONS.retracted.sub(" ", end)))
    return text[:-MAX_PROSE] + end


def stated(text: str, read: Callable[[str], T | None], refusals: bool = False) -> T | None:
    """What `read` finds in what a text asserts: behind the last thing that it takes back, else in all of it.

    `read` gives None where it finds nothing.
    """
    values = (read(asserted(part, refusals)) for part in taken_back(text))
    return next((value for value in values if value is not None), None)


def is_denied(text: str, start: int) -> bool:
    """Whether the clause in which a value starts there denies it: "it does not happen from 3 to 5"."""
    before = text[max(0, start - 64) : start]
    return (DOUBTS.negated.search(before) or DOUBTS.denied_clause.search(before)) is not None


def refuses(text: str) -> bool:
    """Whether a text says that its writer cannot, or will not, answer."""
    return DOUBTS.refused.search(text) is not None


def is_unsure(text: str) -> bool:
    """Whether a text does not commit itself, or refuses."""
    return STATEMENTS.unsure.search(text) is not None or refuses(text)
