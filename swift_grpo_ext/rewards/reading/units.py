"""Units behind a number: those of ``tables/quantities.json``, for pint reads nearly any word as one."""

import math
from dataclasses import dataclass
from functools import lru_cache

from swift_grpo_ext.rewards.reading.words import QUANTITIES, by_word


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

_PREFIXES = ("", *QUANTITIES.prefixes)
_SYMBOLS = {
    f"{prefix}{symbol}": dimension for symbol, dimension in QUANTITIES.symbols.items() for prefix in _PREFIXES
}
_EXACT = {symbol: (dimension, symbol) for symbol, dimension in _SYMBOLS.items()}  # in which capitals differ
_EXACT |= {"C": ("temperature", "degC"), "F": ("temperature", "degF")}
# Words, also in the plural and in capitals; behind "=" what pint calls them if not so.
_FOLDED = {
    word.partition("=")[0]: (dimension, word.partition("=")[2] or word)
    for word, dimension in by_word(QUANTITIES.units).items()
}
_BASE = {"volume": 1000, "angle": math.degrees(1)}  # litres and degrees, not cubic metres and radians
_LONGEST = 3  # characters of a unit in a script without spaces


@lru_cache(maxsize=512)
def _unit(dimension: str, name: str) -> Unit:
    """The unit that pint knows by this name, or a multiple of it: ``0.5*kg``."""
    from pint import application_registry

    times, _, name = name.rpartition("*")
    zero, one = (application_registry.Quantity(n, name).to_base_units().magnitude for n in (0.0, 1.0))
    return Unit(dimension, (one - zero) * _BASE.get(dimension, 1) * float(times or 1), zero)


def find_unit(word: str) -> Unit:
    """The unit of a word (unspaced: of its start) or symbol, whose case counts; else `NO_UNIT`."""
    plain = word.casefold()
    if word in _EXACT:
        entry = _EXACT[word]
    elif ord(plain[0]) > 0x2E80:
        starts = (plain[:length] for length in range(_LONGEST, 0, -1))
        entry = next((_FOLDED[start] for start in starts if start in _FOLDED), ("", ""))
    else:
        entry = _FOLDED.get(plain) or _FOLDED.get(plain.removesuffix("s"), ("", ""))
    return _unit(*entry) if entry[0] else NO_UNIT


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
