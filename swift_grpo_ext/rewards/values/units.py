"""Units and scales behind a number: what ``units.json`` lists, by dimension and size in its base unit."""

import json
from dataclasses import dataclass
from pathlib import Path

_TABLE = json.loads((Path(__file__).parent / "units.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Unit:
    """The unit of a number."""

    dimension: str = ""  # ``length``, ``length/time`` ...; "" if unknown
    factor: float = 1.0  # a number in this unit times this is in the dimension's base unit
    offset: float = 0.0  # added to that: temperature scales have different zeros

    def to_base(self, number: float) -> float:
        """The number in the dimension's base unit."""
        return number * self.factor + self.offset

    def from_base(self, number: float) -> float:
        """A number in the dimension's base unit, in this one."""
        return (number - self.offset) / self.factor


NO_UNIT = Unit()
SCALES: dict[str, float] = _TABLE["scales"]  # a word to its factor
_UNITS = {
    word: Unit(dimension, *map(float, size.split(" ")))
    for dimension, sizes in _TABLE["units"].items()
    for size, words in sizes.items()
    for word in words
}
_AS_LISTED = str.maketrans("²³", "23", "^{}")  # cm², cm^2 and cm^{2} stand there as cm2


def find_unit(word: str) -> Unit:
    """The unit of a word or symbol, in the singular or plural; `NO_UNIT` if unknown. MW is not mW."""
    word = word.translate(_AS_LISTED)
    if word in _UNITS:
        return _UNITS[word]
    parts = word.casefold().split("/")
    singular = "/".join(part if part in _UNITS else part.removesuffix("s") for part in parts)
    return _UNITS.get(singular, NO_UNIT)
