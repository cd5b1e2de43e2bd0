"""Units of measurement as they stand behind a number: what is measured, and how to convert it, by pint.

Pint reads nearly any word as a unit ("5 in total" as inches), so the words that count are listed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


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

# Words that are units, also in the plural and in capitals; behind "=" what pint calls them if not so.
_WORDS = {
    "length": "nm μm um=μm mm cm dm m km meter metre 米=m kilometer kilometre 千米=km 公里=km centimeter"
    " centimetre 厘米=cm millimeter millimetre 毫米=mm inch inches=inch ft foot feet=foot yd yard mile",
    "length^2": "ha=hectare hectare acre",
    "mass": "μg mg milligram g gram 克=g kg kilogram kilo=kg 千克=kg 公斤=kg lb pound oz ounce tonne"
    " ton=tonne 吨=tonne",
    "time": "ns μs us=μs ms millisecond s sec=s second 秒=s min minute 分钟=minute h hr=h hour 小时=hour"
    " day 天=day week month year yr=year",
    "volume": "μl=μL ml=mL cl=cL dl=dL milliliter millilitre 毫升=mL l=L liter litre 升=L gallon gal=gallon",
    "angle": "°=degree degree deg=degree 度=degree",
    "length/time": "mph kmh=kph kph knot",
    "voltage": "volt kv=kV millivolt kilovolt",
    "current": "ampere amp=ampere milliampere",
    "power": "watt kw=kW kilowatt megawatt hp",
    "energy": "joule kilojoule wh=Wh kwh=kWh mwh=MWh gwh=GWh cal calorie kcal kilocalorie",
    "frequency": "hertz hz=Hz khz=kHz mhz=MHz ghz=GHz",
    "rotation": "rpm",
    "pressure": "pascal hpa=hPa kpa=kPa bar mbar millibar psi atm mmhg=mmHg",
    "data": "byte kb=kB kib=KiB mib=MiB gib=GiB tib=TiB",
    "temperature": "celsius=degC centigrade=degC 摄氏度=degC °c=degC fahrenheit=degF 华氏度=degF °f=degF"
    " kelvin",
}
_SYMBOLS = {
    "V": "voltage",
    "A": "current",
    "W": "power",
    "J": "energy",
    "Hz": "frequency",
    "Pa": "pressure",
    "N": "force",
    "Ω": "resistance",
    "B": "data",
}
_PREFIXES = ("n", "μ", "m", "", "k", "M", "G", "T")
_EXACT = {  # in which capitals differ
    prefix + symbol: (dimension, prefix + symbol)
    for symbol, dimension in _SYMBOLS.items()
    for prefix in _PREFIXES
} | {"C": ("temperature", "degC"), "F": ("temperature", "degF")}
_FOLDED = {
    word.partition("=")[0]: (dimension, word.partition("=")[2] or word)
    for dimension, words in _WORDS.items()
    for word in words.split()
}
_BASE = {"volume": 1000, "angle": math.degrees(1)}  # litres and degrees, not cubic metres and radians
_LONGEST = 3  # characters of a unit in a script without spaces


@lru_cache(maxsize=1)
def _registry() -> Any:
    from pint import UnitRegistry

    return UnitRegistry()


@lru_cache(maxsize=512)
def _unit(dimension: str, name: str) -> Unit:
    """The unit that pint knows by this name."""
    zero, one = (_registry().Quantity(number, name).to_base_units().magnitude for number in (0.0, 1.0))
    return Unit(dimension, (one - zero) * _BASE.get(dimension, 1), zero)


def find_unit(word: str) -> Unit:
    """The unit of a word or symbol, `NO_UNIT` if it is none.

    Case counts only for symbols with SI prefixes (mW, MW) and for single letters. A word of a script without
    spaces need only begin with a unit.
    """
    plain = word.casefold()
    if word in _EXACT:
        found = _EXACT[word]
    elif ord(plain[0]) > 0x2E80:
        starts = (plain[:length] for length in range(_LONGEST, 0, -1))
        found = next((_FOLDED[start] for start in starts if start in _FOLDED), ("", ""))
    else:
        found = _FOLDED.get(plain) or _FOLDED.get(plain.removesuffix("s"), ("", ""))
    return _unit(*found) if found[0] else NO_UNIT


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


def may_be_equal(one: Unit, other: Unit) -> bool:
    """Whether numbers in these units can stand for one thing as they are written.

    So it is where one of them has no unit that is known, and where one is in degrees of whatever kind.
    """
    dimensions = {one.dimension, other.dimension}
    return "" in dimensions or dimensions == {"angle", "temperature"}
