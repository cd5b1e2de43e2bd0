"""Units and scales behind a number: what ``units.json`` lists, each unit with its other spellings."""

import json
from pathlib import Path

_TABLE = json.loads((Path(__file__).parent / "units.json").read_text(encoding="utf-8"))
SCALES: dict[str, float] = _TABLE["scales"]  # a word to its factor
_UNITS: dict[str, str] = {word: words[0] for words in _TABLE["units"] for word in words}
_AS_LISTED = str.maketrans("²³", "23", "^{}")  # cm², cm^2 and cm^{2} stand there as cm2


def find_unit(text: str) -> str:
    """The unit of a symbol or word, also of a quotient, in one spelling; "" if unknown. MW is not mW.

    >>> find_unit("km/hour"), find_unit("meters"), find_unit("cm²"), find_unit("apples")
    ('km/h', 'm', 'cm2', '')
    """
    if text in _UNITS:
        return _UNITS[text]
    units = [_in_one_spelling(word) for word in text.translate(_AS_LISTED).split("/")]
    return "/".join(units) if all(units) else ""


def _in_one_spelling(word: str) -> str:
    plain = word if word in _UNITS else word.casefold()
    return _UNITS.get(plain) or _UNITS.get(plain.removesuffix("s"), "")
