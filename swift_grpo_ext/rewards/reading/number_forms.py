"""The many writings of a number, brought to the one that `numbers` reads; all patterns are bounded."""

import re
import unicodedata

from swift_grpo_ext.rewards.reading.schema import any_case
from swift_grpo_ext.rewards.reading.spelled_numbers import with_digits
from swift_grpo_ext.rewards.reading.words import NUMBERS

_Match = re.Match[str]


def _as_fraction(mixed: _Match) -> str:
    """One fraction; the text as it is if its fraction is not below one."""
    whole, part, parts = map(int, mixed.groups())
    return f"{whole * parts + part}/{parts}" if part < parts else mixed[0]


def _as_share(share: _Match) -> str:
    times, part = share.groups("half")
    return f"{times if times.isdigit() else 1}/{_PARTS[part.casefold()]}"


def _joined(groups: _Match) -> str:
    return groups[0].replace(" ", "")


# "ist": a word of a language in which 1.500 is 1500
_COMMA_LANGUAGE = any_case(
    r"\b(?:ist|sind|beträgt|liegt|etwa|rund|es de|fue|fueron|son|è|sono|são|foi|está|hay)\b"
)
# "1.500"
_POINT_OF_THOUSANDS = re.compile(r"(?<![\d.,])([1-9]\d{0,2})\.(\d{3})(?![\d.,])")
_PARTS = {"half": 2, "third": 3, "quarter": 4}
_SIGNS = str.maketrans({"−": "-", "–": "-", "＋": "+", "⁄": "/"})


CALCULATED = {"@mixed fraction": _as_fraction, "@share": _as_share, "@joined": _joined}


def in_one_form(text: str) -> str:
    """The text with its numbers in digits, thousands together, fractions as ``1/2`` and powers as ``1e6``."""
    text = with_digits(text)
    if _COMMA_LANGUAGE.search(text):
        text = _POINT_OF_THOUSANDS.sub(r"\1\2", text)
    for form in NUMBERS.before_folding:
        text = form.rewritten(text)
    text = unicodedata.normalize("NFKC", text).translate(_SIGNS)
    for form in NUMBERS.folded:
        text = form.rewritten(text, CALCULATED)
    return text
