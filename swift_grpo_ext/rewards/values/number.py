r"""A number: a sign, digits with thousands and decimals, a fraction or a power of ten; a currency or a
percent sign, one scale, one unit or what is counted.

>>> [read(text).written for text in ("42", "-1,234.5", "$3.2 million", "12%", "3/4", "2.5e3", r"\frac{1}{2}")]
[42.0, -1234.5, 3200000.0, 12.0, 0.75, 2500.0, 0.5]
>>> read("5 km/h").unit.dimension, read("40^\circ").unit.dimension, read("90 minutes").value
('length/time', 'angle', 5400.0)

Nothing is taken out of an expression: ``24π``, ``\sqrt{5}``, ``46\pi-24``, ``2x+3`` are not 24, 5, 24, 3.
Nor is one of these a number: ``4 or 5``, ``3-4``, ``about 5``, ``not 12``, ``> 5``, ``12 x``, ``1 h 30 min``.
"""

import math
import re
from dataclasses import dataclass, field

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.values.count import NOUN, WORDS
from swift_grpo_ext.rewards.values.units import NO_UNIT, SCALES, Unit, find_unit

GRAMMAR = "number (one number, with its unit at most)"
MAX_UNIT = 50  # characters
_DIGITS = r"\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+(?![\d ]))(?:\.\d+)?|\d{1,300}(?:\.\d{0,300})?|\.\d{1,300}"
_NUMBER = re.compile(
    rf"(?![-+−]\s?(?:US)?[$€£¥₹]?\s?[-+−])([-+−]?)\s?(?:US)?([$€£¥₹]?)\s?([-+−]?)({_DIGITS})(?:\s?/\s?({_DIGITS}))?"
    r"(?:\s?[×*]\s?10\s?\^\s?\{?([-+]?\d{1,3})\}?|[eE]([-+]?\d{1,3})(?![\w.]))?"
)
_SCALE = re.compile(
    r"\s?((?:thousand|million|billion|trillion)(?=s?\b)|(?:bn|mn|tn|[kMb])\b|[十百千万萬亿億]{1,2})s?"
)
_WHAT = re.compile(NOUN, re.IGNORECASE)
_LATEX = (
    (re.compile(r"\\[dt]?frac(?:\s?\{(\d{1,99})\}\s?\{(\d{1,99})\}|(\d)(\d))"), r"\1\3/\2\4"),
    (re.compile(r"\s?\^?\s?\{?\s?\\(?:circ|degree)s?\s?\}?"), "°"),
    (re.compile(r"\\times\b"), "×"),
    (re.compile(r"\\[,;! ]"), " "),
    (re.compile(r"\{,\}(?=\d)|\\(?=[$%])"), ""),
)


@dataclass(frozen=True)
class Quantity:
    """A number with its unit."""

    written: float  # without its unit; of a percentage the figure before the sign
    unit: Unit = NO_UNIT
    whole: bool = field(default=False, compare=False)  # written without decimals, fraction or power of ten

    @property
    def value(self) -> float:
        """The number in the base unit of its dimension, a percentage as a share."""
        return self.unit.to_base(self.written)

    def __str__(self) -> str:
        return f"{self.written:.12g}" + f" ({self.unit.dimension})" * bool(self.unit.dimension)


def read(text: str) -> Quantity:
    """Read a text as one number.

    Raises:
        Unread: It is not one number.
    """
    plain = text
    if "\\" in plain or "{" in plain:
        for pattern, sign in _LATEX:
            plain = pattern.sub(sign, plain)
    if plain.lower() in WORDS:
        return Quantity(float(WORDS.index(plain.lower())), whole=True)
    number = _NUMBER.match(plain)
    quantity = _with_unit(number, plain[number.end() :]) if number else None
    if quantity is None or not math.isfinite(quantity.value):
        raise Unread(text, GRAMMAR)
    return quantity


def _with_unit(number: re.Match[str], rest: str) -> Quantity | None:
    """The number with what stands behind it; None if that is more than a scale and a unit."""
    before, currency, sign, digits, divisor, power, exponent = number.groups()
    value = _float(digits)
    if divisor:
        value = value / _float(divisor) if _float(divisor) else math.nan
    value *= float(f"1e{power or exponent or 0}")
    if scale := _SCALE.match(rest):
        value *= SCALES.get(scale[1], math.nan)
        rest = rest[scale.end() :]
    unit = find_unit(rest.strip(" ~") or currency) if len(rest) < MAX_UNIT else NO_UNIT
    if rest and unit is NO_UNIT and not _WHAT.fullmatch(rest):
        return None
    whole = "." not in digits and not (divisor or power or exponent)
    return Quantity(-value if before + sign in ("-", "−") else value, unit, whole)


def _float(digits: str) -> float:
    return float(digits.replace(",", "").replace(" ", ""))
