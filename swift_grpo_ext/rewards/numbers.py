"""Reading numbers the way people and models write them. Every pattern is bounded, so all of it is linear."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass

from swift_grpo_ext.rewards.units import NO_UNIT, Unit, find_unit, per, raised

_SCALES = {
    **dict.fromkeys(("k", "thousand", "千"), 1e3),
    **dict.fromkeys(("万", "萬"), 1e4),
    **dict.fromkeys(("M", "mn", "mio", "million", "millions", "百万"), 1e6),
    **dict.fromkeys(("亿", "億"), 1e8),
    **dict.fromkeys(("b", "bn", "billion", "billions"), 1e9),
    **dict.fromkeys(("tn", "trillion", "trillions", "万亿"), 1e12),
}

_MANY = 308  # digits that a float can have before its point
_DIGITS = (
    r"\d{1,3}(?:,\d{2,3}){0,8},\d{3}(?![\d,])(?:\.\d{1,18})?"
    r"|\d{1,3}(?:\.\d{3}){1,8},\d{1,18}|\d{1,3}(?:\.\d{3}){2,8}(?![\d.])"
    rf"|\d{{1,{_MANY}}}(?!\d)(?:[.,]\d{{0,{_MANY}}})?|\.\d{{1,{_MANY}}}"
)
_POWER = r"[eE]([-+]?\d{1,3})|\s?(?:×|x|\*|\\times)\s?10\s?(?:\^|\*\*)\s?\{?\s?([-+]?\d{1,3})\s?\}?"
_RAISED_TO = r"(?:\^\{?([23])\}?|([23])(?!\d))"
_NUMBER = re.compile(
    rf"(?<![A-Za-z0-9_.])([-+]?)\s?\\?[$€£¥₹]?({_DIGITS})(?:\s?/\s?(\d{{1,18}})(?![\d/]))?(?:{_POWER})?"
    r"\s?(\\?[%‰]|(?:percent|per cent|pct)(?![A-Za-z]))?"
    r"\s?(°\s?[CF](?![^\W\d_])|[^\W\d_]{1,12}|°)?(?:\s?(?!per\s)([^\W\d_]{1,12}))?"
    rf"(?:(?<=[^\W\d_]){_RAISED_TO})?(?:(?:\s?/\s?|\sper\s)([^\W\d_]{{1,12}}){_RAISED_TO}?)?"
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d*)?\Z")
_POINTS = re.compile(r"\d{1,3}(?:\.\d{3}){2,}\Z|\d{1,3}(?:\.\d{3})+,\d+\Z")
_FRACTION = re.compile(r"\\[dt]?frac\s?(?:\{\s?(\d{1,18})\s?\}\s?\{\s?(\d{1,18})\s?\}|(\d)(\d)(?!\d))")
_MIXED = re.compile(r"(?<![\d.,/])(\d{1,9}) (\d{1,3})/(\d{1,3})(?![\d/])")
_VULGAR = re.compile(r"[¼-¾⅐-⅞]")
_RAISED = re.compile(r"[⁰¹²³⁴-⁹⁺⁻]{1,8}")
_SIGNS = str.maketrans({"−": "-", "–": "-", "＋": "+", "⁄": "/"})
_UPRIGHT = re.compile(r"\\(?:text|mathrm|rm|unit|operatorname)\s?\{([^{}]{0,24})\}")
_DEGREES = re.compile(r"\^?\s?\{?\s?(?:\\circ|\\degree)\s?\}?|\\textdegree|[º˚]")
_SPACES = re.compile(r"\\[,;:! ]|~")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)(?:[\u00a0\u2009\u202f'’]|\\,|\{,\})(?=\d{3}(?!\d))")


@dataclass(frozen=True)
class Quantity:
    """A number with what stands behind it.

    Attributes:
        written: In the unit that it was written in; a percentage is divided by 100.
        percent: Written with a percent or per-mille sign.
        unit: `swift_grpo_ext.rewards.units.NO_UNIT` for none that is known.
    """

    written: float
    percent: bool = False
    unit: Unit = NO_UNIT

    @property
    def value(self) -> float:
        """In the base unit of its dimension."""
        return self.unit.to_base(self.written)


def quantities(text: str) -> list[Quantity]:
    """All numbers of a text, in order, with their scale, unit and percent sign applied.

    ``1,234.5``, ``1.234,5``, ``3,14`` (a comma not followed by groups of three is decimal), ``-2.5e-3``,
    ``1.2 × 10^5``, ``3/4``, ``2 1/2``, ``½``, ``$5 million``, ``12%``, ``12 percent``, ``5 km``, ``20 m²``,
    ``3万``, ``25 °C``, ``120 km/h``, ``5\\,\\text{km}``.
    """
    text = _SPACES.sub(" ", _UPRIGHT.sub(r" \1", _DEGREES.sub("°", _BETWEEN_DIGITS.sub("", text))))
    plain = _RAISED.sub(lambda above: f"^{above[0]}", _VULGAR.sub(r" \g<0>", text))
    plain = unicodedata.normalize("NFKC", plain).translate(_SIGNS)
    plain = _MIXED.sub(_as_fraction, _FRACTION.sub(r" \1\3/\2\4", plain))
    return [found for match in _NUMBER.finditer(plain) if (found := _quantity(match)) is not None]


def _as_fraction(mixed: re.Match[str]) -> str:
    """``2 1/2`` as ``5/2``; as it is if the fraction is none below one."""
    whole, part, parts = map(int, mixed.groups())
    return f"{whole * parts + part}/{parts}" if part < parts else mixed[0]


def _quantity(match: re.Match[str]) -> Quantity | None:
    sign, digits, divisor, power, written_power, percent, *behind = match.groups()
    grouped = _GROUPED.match(digits)
    if _POINTS.match(digits):
        digits = digits.replace(".", "")
    value = float(digits.replace(",", "" if grouped else "."))
    if divisor:
        value = value / int(divisor) if int(divisor) else math.nan
    value *= float(f"1e{power or written_power or 0}") * (-1 if sign == "-" else 1)
    if percent:
        value /= 1000 if percent.endswith("‰") else 100
    scale, unit = _scale_and_unit(*behind)
    found = Quantity(value * scale, bool(percent), unit)
    return found if math.isfinite(found.value) and math.isfinite(found.written) else None


def _scale_and_unit(
    word: str | None, next_word: str | None, power: str | None, digit: str | None, *below: str | None
) -> tuple[float, Unit]:
    """What stands behind a number: a scale word, a unit and its power, and what it is per."""
    scale = _scale(word) if word else None
    if scale is not None:
        word = next_word
    elif word and next_word and find_unit(word).dimension == "angle":  # degrees Celsius
        word = next_word if find_unit(next_word).dimension == "temperature" else word
    unit = raised(find_unit(word.replace(" ", "")), int(power or digit or 1)) if word else NO_UNIT
    divisor, *powers = below
    if divisor:
        unit = per(unit, divisor, int(next(filter(None, powers), 1)))
    return scale or 1.0, unit


def _scale(word: str) -> float | None:
    """The factor of a scale word; of a word of an unspaced script, the longest scale that it starts with."""
    if word in _SCALES or word.casefold() in _SCALES:
        return _SCALES.get(word, _SCALES.get(word.casefold()))
    return _SCALES.get(word[:2], _SCALES.get(word[:1])) if ord(word[0]) > 0x2E80 else None


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
