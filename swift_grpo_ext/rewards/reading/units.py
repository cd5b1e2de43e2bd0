"""Units behind a number: those of ``tables/quantities.json``."""

from dataclasses import dataclass

from swift_grpo_ext.rewards.reading.schema import by_word
from swift_grpo_ext.rewards.reading.words import QUANTITIES


@dataclass(frozen=True)
class Unit:
    """What a number is in."""

    dimension: str = ""  # ``length``, ``length/time`` ...; "" for none that is known
    factor: float = 1.0  # A number in this unit times this is in the dimension's base unit
    offset: float = 0.0  # what is added to that: temperatures do not begin at the same zero

    def to_base(self, number: float) -> float:
        """The number in the dimension's base unit."""
        return number * self.factor + self.offset

    def from_base(self, number: float) -> float:
        """A number in the dimension's base unit, in this one."""
        return (number - self.offset) / self.factor


NO_UNIT = Unit()

# Words, also in the plural and in capitals.
_FOLDED = {
    word: Unit(dimension, *map(float, size.split(" ")))
    for dimension, sizes in QUANTITIES.units.items()
    for word, size in by_word(sizes).items()
}
# In which capitals differ.
_EXACT = {
    f"{prefix}{symbol}": Unit(dimension, factor)
    for symbol, dimension in QUANTITIES.symbols.items()
    for prefix, factor in {"": 1.0, **QUANTITIES.prefixes}.items()
}
_EXACT |= {"C": _FOLDED["celsius"], "F": _FOLDED["fahrenheit"]}
_LONGEST = 3  # characters of a unit in a script without spaces


def find_unit(word: str) -> Unit:
    """The unit of a word (unspaced: of its start) or symbol, whose case counts; else `NO_UNIT`."""
    plain = word.casefold()
    if word in _EXACT:
        return _EXACT[word]
    if ord(plain[0]) > 0x2E80:
        starts = (plain[:length] for length in range(_LONGEST, 0, -1))
        return next((_FOLDED[start] for start in starts if start in _FOLDED), NO_UNIT)
    return _FOLDED.get(plain) or _FOLDED.get(plain.removesuffix("s"), NO_UNIT)


def raised(unit: Unit, power: int) -> Unit:
    """Square and cubic units; litres are cubic decimetres."""
    if not unit.dimension or power == 1:
        return unit
    if (unit.dimension, power) == ("length", 3):
        return Unit("volume", 1000 * unit.factor**3)
    return Unit(f"{unit.dimension}^{power}", unit.factor**power)


def per(unit: Unit, word: str, power: int) -> Unit:
    """The unit divided by another, or by something that is counted (``kg/person``)."""
    below = raised(find_unit(word), power)
    name = below.dimension or word.casefold()
    return Unit(f"{unit.dimension}/{name}", unit.factor / below.factor) if unit.dimension else NO_UNIT
