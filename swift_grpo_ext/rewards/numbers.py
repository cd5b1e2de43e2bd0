"""Reading numbers the way people and models write them. Every pattern is bounded, so all of it is linear."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass

_SCALES = {
    **dict.fromkeys(("k", "thousand", "千"), 1e3),
    **dict.fromkeys(("万", "萬"), 1e4),
    **dict.fromkeys(("M", "mn", "mio", "million", "millions", "百万"), 1e6),
    **dict.fromkeys(("亿", "億"), 1e8),
    **dict.fromkeys(("b", "bn", "billion", "billions"), 1e9),
    **dict.fromkeys(("tn", "trillion", "trillions", "万亿"), 1e12),
}

_BY_DIMENSION: dict[str, dict[str, float]] = {
    "length": {"nm": 1e-9, "μm": 1e-6, "mm": 1e-3, "cm": 1e-2, "dm": 0.1, "m": 1.0, "meter": 1.0}
    | {
        "metre": 1.0,
        "km": 1e3,
        "inch": 0.0254,
        "inche": 0.0254,
        "ft": 0.3048,
        "feet": 0.3048,
        "mile": 1609.344,
    },
    "mass": {"mg": 1e-6, "g": 1e-3, "gram": 1e-3, "kg": 1.0, "lb": 0.45359237, "tonne": 1e3, "ton": 1e3},
    "time": {"ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0}
    | {"h": 3600.0, "hour": 3600.0, "hr": 3600.0, "day": 86400.0, "week": 604800.0},
    "volume": {"ml": 1e-3, "l": 1.0, "liter": 1.0, "litre": 1.0},
    "angle": {"°": 1.0, "degree": 1.0, "deg": 1.0, "度": 1.0},
}
_UNITS = {unit: (name, factor) for name, units in _BY_DIMENSION.items() for unit, factor in units.items()}

_MANY = 308  # digits that a float can have before its point
_DIGITS = (
    r"\d{1,3}(?:,\d{2,3}){0,8},\d{3}(?![\d,])(?:\.\d{1,18})?"
    r"|\d{1,3}(?:\.\d{3}){1,8},\d{1,18}|\d{1,3}(?:\.\d{3}){2,8}(?![\d.])"
    rf"|\d{{1,{_MANY}}}(?!\d)(?:[.,]\d{{0,{_MANY}}})?|\.\d{{1,{_MANY}}}"
)
_POWER = r"[eE]([-+]?\d{1,3})|\s?(?:×|x|\*|\\times)\s?10\s?(?:\^|\*\*)\s?\{?\s?([-+]?\d{1,3})\s?\}?"
_NUMBER = re.compile(
    rf"(?<![A-Za-z0-9_.])([-+]?)\s?\\?[$€£¥₹]?({_DIGITS})(?:\s?/\s?(\d{{1,18}})(?![\d/]))?(?:{_POWER})?"
    r"\s?(\\?[%‰]|(?:percent|per cent|pct)(?![A-Za-z]))?"
    r"\s?([^\W\d_]{1,12}|°)?(?:\s?([^\W\d_]{1,12}))?(?:(?<=[^\W\d_])(?:\^\{?([23])\}?|([23])(?!\d)))?"
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d*)?\Z")
_POINTS = re.compile(r"\d{1,3}(?:\.\d{3}){2,}\Z|\d{1,3}(?:\.\d{3})+,\d+\Z")
_FRACTION = re.compile(r"\\[dt]?frac\s?(?:\{\s?(\d{1,18})\s?\}\s?\{\s?(\d{1,18})\s?\}|(\d)(\d)(?!\d))")
_MIXED = re.compile(r"(?<![\d.,/])(\d{1,9}) (\d{1,3})/(\d{1,3})(?![\d/])")
_VULGAR = re.compile(r"[¼-¾⅐-⅞]")
_RAISED = re.compile(r"[⁰¹²³⁴-⁹⁺⁻]{1,8}")
_SIGNS = str.maketrans({"−": "-", "–": "-", "＋": "+", "⁄": "/"})
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[\u00a0\u2009\u202f'’](?=\d{3}(?!\d))")


@dataclass(frozen=True)
class Quantity:
    """A number with what stands behind it.

    Attributes:
        value: In base units; a percentage is divided by 100.
        written: The same in the unit that it was written in.
        percent: Written with a percent or per-mille sign.
        dimension: ``length``, ``mass`` ... or "" for none that is known.
    """

    value: float
    written: float
    percent: bool = False
    dimension: str = ""


def quantities(text: str) -> list[Quantity]:
    """All numbers of a text, in order, with their scale, unit and percent sign applied.

    ``1,234.5``, ``1.234,5``, ``3,14`` (a comma not followed by groups of three is decimal), ``-2.5e-3``,
    ``1.2 × 10^5``, ``3/4``, ``2 1/2``, ``½``, ``$5 million``, ``12%``, ``12 percent``, ``5 km``, ``20 m²``,
    ``3万``.
    """
    plain = _RAISED.sub(lambda raised: f"^{raised[0]}", _VULGAR.sub(r" \g<0>", text))
    plain = unicodedata.normalize("NFKC", _BETWEEN_DIGITS.sub("", plain)).translate(_SIGNS)
    plain = _MIXED.sub(_as_fraction, _FRACTION.sub(r" \1\3/\2\4", plain))
    return [found for match in _NUMBER.finditer(plain) if (found := _quantity(match)) is not None]


def _as_fraction(mixed: re.Match[str]) -> str:
    """``2 1/2`` as ``5/2``; as it is if the fraction is none below one."""
    whole, part, parts = map(int, mixed.groups())
    return f"{whole * parts + part}/{parts}" if part < parts else mixed[0]


def _quantity(match: re.Match[str]) -> Quantity | None:
    sign, digits, divisor, power, written_power, percent, word, next_word, *raised = match.groups()
    grouped = _GROUPED.match(digits)
    if _POINTS.match(digits):
        digits = digits.replace(".", "")
    value = float(digits.replace(",", "" if grouped else "."))
    if divisor:
        value = value / int(divisor) if int(divisor) else math.nan
    value *= float(f"1e{power or written_power or 0}") * (-1 if sign == "-" else 1)
    if percent:
        value /= 1000 if percent.endswith("‰") else 100
    scale = _scale(word) if word else None
    if scale is not None:
        value, word = value * scale, next_word
    dimension, factor = _unit(word, int(raised[0] or raised[1] or 1)) if word else ("", 1.0)
    found = Quantity(value * factor, value, bool(percent), dimension)
    return found if math.isfinite(found.value) and math.isfinite(value) else None


def _scale(word: str) -> float | None:
    """The factor of a scale word; of a word of an unspaced script, the longest scale that it starts with."""
    if word in _SCALES or word.casefold() in _SCALES:
        return _SCALES.get(word, _SCALES.get(word.casefold()))
    return _SCALES.get(word[:2], _SCALES.get(word[:1])) if ord(word[0]) > 0x2E80 else None


def _unit(word: str, power: int) -> tuple[str, float]:
    plain = word.casefold()
    name, factor = _UNITS.get(plain, _UNITS.get(plain.removesuffix("s"), ("", 1.0)))
    if (name, power) == ("length", 3):
        return "volume", 1000 * factor**3
    return (f"{name}^{power}" if name and power > 1 else name), factor**power


_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
_HAN = "零一二三四五六七八九十"
_COUNT_WORDS = {word: value for value, word in enumerate(_WORDS.split())} | {
    character: value for value, character in enumerate(_HAN)
}
_COUNT_WORDS |= {"〇": 0, "两": 2, "兩": 2}
_ONES = _WORDS.split()[1:10]
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_COUNT_WORDS |= {word: 10 * tens for tens, word in enumerate(_TENS, start=2)}
_COUNT_WORDS |= {f"{ten}-{one}": _COUNT_WORDS[ten] + _COUNT_WORDS[one] for ten in _TENS for one in _ONES}
_NOTHING = re.compile(r"\b(?:none|no)\b")
_COUNT = re.compile(
    r"(?<![A-Za-z0-9_.,-])(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,15})(?:\.0{1,9})?(?!\d|[.,]\d)"
    rf"|(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_ONES)})\b)?|[a-z]{{2,9}}"
    r"|[零〇一二三四五六七八九十两兩]{1,3}"
)


def counts(text: str) -> list[int]:
    """All whole numbers from 0 of a text, in order: digits, and words up to 99 in English and Chinese.

    A text without any, that says "no" or "none", holds a 0.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    counted = (_count(match[0]) for match in _COUNT.finditer(plain))
    found = [value for value in counted if value is not None]
    return found or [0] * len(_NOTHING.findall(plain)[:1])


def _count(word: str) -> int | None:
    if word[0].isdigit():
        return int(word.partition(".")[0].replace(",", ""))
    word = word.replace(" ", "-")
    tens, ten, ones = word.partition("十")
    if ten and word != "十":
        parts = _COUNT_WORDS.get(tens or "一"), _COUNT_WORDS.get(ones or "零")
        return None if None in parts else 10 * (parts[0] or 0) + (parts[1] or 0)
    return _COUNT_WORDS.get(word)
