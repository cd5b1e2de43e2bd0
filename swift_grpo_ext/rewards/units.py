"""Units of measurement as they stand behind a number: what is measured, and how to convert it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """What a number is in.

    Attributes:
        dimension: ``length``, ``length/time`` ...; "" for none that is known.
        factor: A number in this unit times this is in the dimension's base unit.
        offset: What is added to that: temperatures do not begin at the same zero.
    """

    dimension: str = ""
    factor: float = 1.0
    offset: float = 0.0

    def to_base(self, number: float) -> float:
        """The number in the dimension's base unit."""
        return number * self.factor + self.offset

    def from_base(self, number: float) -> float:
        """A number in the dimension's base unit, in this one."""
        return (number - self.offset) / self.factor


NO_UNIT = Unit()

_WORDS: dict[str, dict[str, float]] = {  # also in the plural and in capitals
    "length": {"nm": 1e-9, "μm": 1e-6, "um": 1e-6, "mm": 1e-3, "cm": 1e-2, "dm": 0.1, "m": 1.0, "km": 1e3}
    | dict.fromkeys(("meter", "metre", "米"), 1.0)
    | dict.fromkeys(("kilometer", "kilometre", "千米", "公里"), 1e3)
    | dict.fromkeys(("centimeter", "centimetre", "厘米"), 1e-2)
    | dict.fromkeys(("millimeter", "millimetre", "毫米"), 1e-3)
    | dict.fromkeys(("inch", "inches"), 0.0254)
    | dict.fromkeys(("ft", "foot", "feet"), 0.3048)
    | {"yd": 0.9144, "yard": 0.9144, "mile": 1609.344},
    "length^2": {"ha": 1e4, "hectare": 1e4, "acre": 4046.8564224},
    "mass": {"μg": 1e-9, "mg": 1e-6, "milligram": 1e-6}
    | dict.fromkeys(("g", "gram", "克"), 1e-3)
    | dict.fromkeys(("kg", "kilogram", "kilo", "千克", "公斤"), 1.0)
    | {"lb": 0.45359237, "pound": 0.45359237, "oz": 0.028349523125, "ounce": 0.028349523125}
    | dict.fromkeys(("tonne", "ton", "吨"), 1e3),
    "time": {"ns": 1e-9, "μs": 1e-6, "us": 1e-6, "ms": 1e-3, "millisecond": 1e-3}
    | dict.fromkeys(("s", "sec", "second", "秒"), 1.0)
    | dict.fromkeys(("min", "minute", "分钟"), 60.0)
    | dict.fromkeys(("h", "hr", "hour", "小时"), 3600.0)
    | {"day": 86400.0, "天": 86400.0, "week": 604800.0, "month": 31557600 / 12}
    | dict.fromkeys(("year", "yr"), 31557600.0),
    "volume": {"μl": 1e-6, "ml": 1e-3, "cl": 1e-2, "dl": 0.1}
    | dict.fromkeys(("milliliter", "millilitre", "毫升"), 1e-3)
    | dict.fromkeys(("l", "liter", "litre", "升"), 1.0)
    | {"gallon": 3.785411784, "gal": 3.785411784},
    "angle": dict.fromkeys(("°", "degree", "deg", "度"), 1.0),
    "length/time": {"mph": 1609.344 / 3600, "kmh": 1 / 3.6, "kph": 1 / 3.6, "knot": 1852 / 3600},
    "voltage": {"volt": 1.0, "kv": 1e3, "millivolt": 1e-3, "kilovolt": 1e3},
    "current": {"ampere": 1.0, "amp": 1.0, "milliampere": 1e-3},
    "power": {"watt": 1.0, "kw": 1e3, "kilowatt": 1e3, "megawatt": 1e6, "hp": 745.69987158227},
    "energy": {"joule": 1.0, "kilojoule": 1e3, "wh": 3.6e3, "kwh": 3.6e6, "mwh": 3.6e9, "gwh": 3.6e12}
    | dict.fromkeys(("cal", "calorie"), 4.184)
    | dict.fromkeys(("kcal", "kilocalorie"), 4184.0),
    "frequency": {"hertz": 1.0, "hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9},
    "rotation": {"rpm": 1.0},
    "pressure": {"pascal": 1.0, "hpa": 1e2, "kpa": 1e3, "bar": 1e5, "mbar": 1e2, "millibar": 1e2}
    | {"psi": 6894.757293168, "atm": 101325.0, "mmhg": 133.322387415},
    "data": {"byte": 1.0, "kb": 1e3, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40},
}
_SYMBOLS = {  # with SI prefixes, in which capitals differ
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
_PREFIXES = {"n": 1e-9, "μ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

_CELSIUS = Unit("temperature", 1.0, 273.15)
_FAHRENHEIT = Unit("temperature", 5 / 9, 273.15 - 32 * 5 / 9)
_KELVIN = Unit("temperature")
_TEMPERATURES = {
    **dict.fromkeys(("C", "°C", "celsius", "centigrade", "摄氏度"), _CELSIUS),
    **dict.fromkeys(("F", "°F", "fahrenheit", "华氏度"), _FAHRENHEIT),
    "kelvin": _KELVIN,
}

_EXACT = {
    prefix + symbol: Unit(dimension, factor)
    for symbol, dimension in _SYMBOLS.items()
    for prefix, factor in _PREFIXES.items()
} | _TEMPERATURES
_FOLDED = {word: Unit(name, factor) for name, words in _WORDS.items() for word, factor in words.items()} | {
    word: unit for word, unit in _TEMPERATURES.items() if word == word.casefold()
}
_LONGEST = 3  # characters of a unit in a script without spaces


def find_unit(word: str) -> Unit:
    """The unit of a word or symbol, `NO_UNIT` if it is none.

    Case counts only for symbols with SI prefixes (mW, MW) and for single letters. A word of a script without
    spaces need only begin with a unit.
    """
    if word in _EXACT:
        return _EXACT[word]
    plain = word.casefold()
    if ord(plain[0]) > 0x2E80:
        starts = (plain[:length] for length in range(_LONGEST, 0, -1))
        return next((_FOLDED[start] for start in starts if start in _FOLDED), NO_UNIT)
    return _FOLDED.get(plain, _FOLDED.get(plain.removesuffix("s"), NO_UNIT))


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
