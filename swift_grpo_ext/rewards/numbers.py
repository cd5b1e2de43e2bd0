"""Reading numbers the way people and models write them. Every pattern is bounded, so all of it is linear."""

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from swift_grpo_ext.rewards.statement import after_label
from swift_grpo_ext.rewards.units import NO_UNIT, Unit, find_unit, per, raised, with_digits
from swift_grpo_ext.rewards.words import meanings

_SCALES = {word: float(scale) for word, scale in meanings("scales").items()}
_MANY = 308  # digits that a float can have before its point
_DIGITS = (
    r"(?:\d{1,3}(?:,\d{3}){0,8}|\d{1,2}(?:,\d{2}){1,8}),\d{3}(?![\d,])(?:\.\d{1,18})?"
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
_GROUPS = re.compile(r"(?<![\d.,/] )(?<![\d.,/])\d{1,3}(?: \d{3}){1,5}(?![\d/]| \d)")
_CLOCK = re.compile(r"(?<![\w.])(\d{1,3})\s?h\s?([0-5]\d)(?![\w.])")
_COLONS = re.compile(r"(?<![\d:.])(\d{1,3}):([0-5]\d)(?![\d:]|\.\d)")
_HMS = re.compile(r"(?<![\d:.])(\d{1,3}):([0-5]\d):([0-5]\d)(?![\d:])")
_HALVES = re.compile(
    r"\b(?:an? (\w{3,12})|(\d{1,9})(?: (\w{3,12}))?) and a half\b|\bhalf an? (\w{3,12})", re.IGNORECASE
)
_HOURS = re.compile(r"(?<=\d)(\s?(?:h|hrs?|hours?|小时|min|m|分钟?))(?=\d{1,2}\s?(?:m|s|分|秒))")
_POWER_OF_TEN = re.compile(
    r"(?<![\d.^×x*])(?<![×x*] )(?<!times )10\s?(?:\^|\*\*)\s?\{?\s?([-+]?\d{1,3})\s?\}?"
)
_TOGETHER = re.compile(r"(?:[^\W\d_]|[\s,，.°]){1,16}")
_SAID = (
    re.compile(
        r"(?:\b(?:is|was|are|were|be|equals?)|[=≈:为是]|等于|达到?)[\s*$:]{0,4}(?:(?:about|approximately"
        r"|approx\.?|around|roughly|nearly|almost|only|just|exactly|大约|约|~)[\s*$]{0,3})?[($€£¥]{0,2}\Z"
    ),
    re.compile(""),
)
_BOLD = re.compile(r"\*\*[^*\d]{0,20}\Z"), re.compile(r"[^*\d\n]{0,20}\*\*")
_ASIDE = re.compile(
    r"[^\d.;,，]{0,24}(?:[(（]|\b(?:in|for|during|as of|out of|of|by|compared with|up from|down from)\b) ?\d"
)
_OR = re.compile(r"[^\d.;=]{0,16}(?:\bor\b|或者?)[^\d.;=]{0,12}| ?[-~] ?")
_AND = re.compile(r"[^\d.;=]{0,12}(?:\b(?:and|to)\b|和|到|至)[\s$*]{0,4}")
_BETWEEN = re.compile(r"\b(?:between|from)\s?[$*]{0,3}\Z|介于\Z")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)(?:[\u00a0\u2009\u202f'’]|\\,|\{,\})(?=\d{3}(?!\d))")


@dataclass(frozen=True)
class Quantity:
    """A number with what stands behind it."""

    written: float  # in the unit that it was written in; a percentage is divided by 100
    percent: bool = False  # written with a percent or per-mille sign
    unit: Unit = NO_UNIT
    thousands: bool = False  # with a bare K behind it, which may be kelvin

    @property
    def value(self) -> float:
        """In the base unit of its dimension."""
        return self.unit.to_base(self.written)


Located: TypeAlias = tuple[int, int, Quantity]  # start of a number, end of its digits, value
Place: TypeAlias = tuple[re.Pattern[str], re.Pattern[str]]  # what stands before and behind a number


def _written(text: str) -> str:
    """The text in the one writing that `_NUMBER` reads."""
    text = _CLOCK.sub(r"\1 h \2 min", _HALVES.sub(_with_half, with_digits(text)))
    text = _SPACES.sub(" ", _UPRIGHT.sub(r" \1", _DEGREES.sub("°", _BETWEEN_DIGITS.sub("", text))))
    plain = _RAISED.sub(lambda above: f"^{above[0]}", _VULGAR.sub(r" \g<0>", text))
    plain = unicodedata.normalize("NFKC", plain).translate(_SIGNS)
    plain = _GROUPS.sub(lambda groups: groups[0].replace(" ", ""), _HOURS.sub(r"\1 ", plain))
    plain = _POWER_OF_TEN.sub(r"1e\1", plain)
    return _MIXED.sub(_as_fraction, _FRACTION.sub(r" \1\3/\2\4", plain))


def quantities(text: str) -> list[Quantity]:
    """All numbers of a text, in order, with their scale, unit and percent sign applied."""
    return [quantity for _, _, quantity in _read(text)[1]]


def _read(text: str) -> tuple[str, list[Located]]:
    """The text as `_NUMBER` reads it, and its numbers; "1 h 30 min" is one."""
    plain = _written(text)
    found: list[Located] = []
    for match in _NUMBER.finditer(plain):
        if (quantity := _quantity(match)) is None:
            continue
        start, end, whole = found[-1] if found else (0, 0, Quantity(math.nan))
        if _adds_to(whole, quantity) and _TOGETHER.fullmatch(plain, end, match.start()):
            found.pop()
            quantity = Quantity(whole.written + whole.unit.from_base(quantity.value), False, whole.unit)
        else:
            start = match.start()
        found.append((start, match.end(2), quantity))
    return plain, found


def _adds_to(whole: Quantity, part: Quantity) -> bool:
    """Whether a part in a smaller unit follows: feet and inches, hours and minutes."""
    one, other = whole.unit, part.unit
    same = one.dimension == other.dimension in ("time", "length", "mass", "angle")
    return same and other.factor < one.factor and 0 <= part.value < one.factor and whole.written >= 0


def as_temperature(quantity: Quantity) -> Quantity:
    """The quantity beside a temperature: 300 K are kelvin there, and no thousands."""
    kelvin = Quantity(quantity.written / 1000, unit=find_unit("kelvin"))
    return kelvin if quantity.thousands else quantity


def durations(text: str) -> list[str]:
    """Readings of a text beside a duration, where ``1:30`` is 1 min 30 s, or 1 h 30 min."""
    units = (("min", "s"), ("h", "min"))
    return [
        _COLONS.sub(rf"\1 {large} \2 {small}", _HMS.sub(r"\1 h \2 min \3 s", text)) for large, small in units
    ]


def stated_quantity(text: str, first: Sequence[Place] = ()) -> Quantity | None:
    """The number that a text states, in one of the places `first` if it can; None if none, or "4.5 or 5"."""
    plain, found = _read(text)
    label, in_label = _read(after_label(text))
    chosen = [index for place in first for index in _in_place(plain, found, place)[-1:]]
    if not chosen and in_label:
        plain, found = label, in_label
    if not found:
        return None
    index = chosen[0] if chosen else _chosen(plain, found, bool(in_label))
    return None if _is_choice(plain, found, index) else found[index][2]


def _in_place(plain: str, found: list[Located], place: Place) -> list[int]:
    """Indices of the numbers that stand in a place."""
    return [
        index
        for index, (start, end, _) in enumerate(found)
        if place[0].search(plain[max(0, start - 48) : start]) and place[1].match(plain, end)
    ]


def _chosen(plain: str, found: list[Located], labelled: bool) -> int:
    """Index of the number that a text means; one behind a label may begin it."""
    if len(bold := _in_place(plain, found, _BOLD)) == 1:
        return bold[0]
    opens = "=" not in plain and not plain[: found[0][0]].strip(" *~≈($")
    if opens and (labelled or _ASIDE.match(plain, found[0][1])):
        return 0
    return [len(found) - 1, *_in_place(plain, found, _SAID)][-1]


def _is_choice(plain: str, found: list[Located], chosen: int) -> bool:
    for index in (chosen, chosen + 1):
        if 0 < index < len(found) and found[index - 1][2] != found[index][2]:
            between = plain[found[index - 1][1] : found[index][0]]
            before = plain[max(0, found[index - 1][0] - 16) : found[index - 1][0]]
            if _OR.fullmatch(between) or (_BETWEEN.search(before) and _AND.fullmatch(between)):
                return True
    return False


def _with_half(words: re.Match[str]) -> str:
    """ "An hour and a half", "2 and a half", "half an hour" with a number."""
    one, number, of, half = words.groups()
    return f"0.5 {half}" if half else f"{number or 1}.5 {of or one or ''}".rstrip()


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
    found = Quantity(value * scale, bool(percent), unit, behind[0] == "K" and not unit.dimension)
    return found if math.isfinite(found.value) and math.isfinite(found.written) else None


def _scale_and_unit(
    word: str | None, next_word: str | None, power: str | None, digit: str | None, *below: str | None
) -> tuple[float, Unit]:
    """What stands behind a number: a scale word, a unit and its power, and what it is per."""
    scale = _scale(word) if word and not (word[0] == "千" and find_unit(word).dimension) else None
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
