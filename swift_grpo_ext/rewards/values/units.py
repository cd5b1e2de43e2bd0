"""Units and scales behind a number: what ``units.json`` lists, by dimension and size in its base unit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TABLE = json.loads((Path(__file__).parent / "units.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Unit:
    """What a number is in."""

    dimension: str = ""  # ``length``, ``length/time`` ...; "" for none that is known
    factor: float = 1.0  # a number in this unit times this is in the dimension's base unit
    offset: float = 0.0  # what is added to that: temperatures do not begin at the same zero

    def to_base(self, number: float) -> float:
        """The number in the dimension's base unit."""
        return number * self.factor + self.offset

    def from_base(self, number: float) -> float:
        """A number in the dimension's base unit, in this one."""
        return (number - self.offset) / self.factor


NO_UNIT = Unit()


def _by_word(listed: Mapping[str, list[str]]) -> dict[str, str]:
    return {word: meaning for meaning, words in listed.items() for word in words}


# Words, also in the plural and in capitals.
_FOLDED = {
    word: Unit(dimension, *map(float, size.split(" ")))
    for dimension, sizes in _TABLE["units"].items()
    for word, size in _by_word(sizes).items()
}
# In which capitals differ.
_EXACT = {
    f"{prefix}{symbol}": Unit(dimension, factor)
    for symbol, dimension in _TABLE["symbols"].items()
    for prefix, factor in {"": 1.0, **_TABLE["prefixes"]}.items()
} | {"C": _FOLDED["celsius"], "F": _FOLDED["fahrenheit"], "K": _FOLDED["kelvin"]}
_SCALES = {word: float(factor) for word, factor in _by_word(_TABLE["scales"]).items()}
_POWERS = {"²": 2, "^2": 2, "^{2}": 2, "2": 2, "³": 3, "^3": 3, "^{3}": 3, "3": 3}


def find_unit(word: str) -> Unit:
    """The unit of a word or symbol, whose case counts, also square, cubic and divided; else `NO_UNIT`."""
    if word in _EXACT:
        return _EXACT[word]
    plain = word.casefold()
    if (unit := _FOLDED.get(plain) or _FOLDED.get(plain.removesuffix("s"))) is not None:
        return unit
    for words, power in (("square ", 2), ("cubic ", 3)):
        if plain.startswith(words):
            return raised(find_unit(word[len(words) :]), power)
    for mark, power in _POWERS.items():
        if plain.endswith(mark) and len(plain) > len(mark):
            return raised(find_unit(word[: -len(mark)]), power)
    above, divided, below = word.partition("/")
    return _per(find_unit(above), find_unit(below)) if divided and above and below else NO_UNIT


def raised(unit: Unit, power: int) -> Unit:
    """Square and cubic units; litres are cubic decimetres."""
    if (unit.dimension, power) == ("length", 3):
        return Unit("volume", 1000 * unit.factor**3)
    return Unit(f"{unit.dimension}^{power}", unit.factor**power) if unit.dimension else unit


def _per(unit: Unit, below: Unit) -> Unit:
    if not (unit.dimension and below.dimension):
        return NO_UNIT
    return Unit(f"{unit.dimension}/{below.dimension}", unit.factor / below.factor)


def scale_of(word: str) -> float:
    """The factor of a scale, such as 1e6 for ``million``; 1 for any other word."""
    return _SCALES.get(word) or _SCALES.get(word.casefold().removesuffix("s"), 1.0)
