"""Reading numbers the way people and models write them. Every pattern is bounded, so all of it is linear."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from swift_grpo_ext.rewards.reading.answer import short_answer
from swift_grpo_ext.rewards.reading.assertion import stated
from swift_grpo_ext.rewards.reading.number_forms import in_one_form
from swift_grpo_ext.rewards.reading.schema import NumberPlace, by_word, place
from swift_grpo_ext.rewards.reading.statement import after_label, first_line, labels, without_asides
from swift_grpo_ext.rewards.reading.tokens import named_by
from swift_grpo_ext.rewards.reading.units import NO_UNIT, Unit, find_unit, per, raised
from swift_grpo_ext.rewards.reading.words import DOUBTS, NUMBERS, QUANTITIES

_SCALES = {word: float(scale) for word, scale in by_word(QUANTITIES.scales).items()}
FIRST = 16  # numbers of a text that are looked at from its start, and `MOST` from its end: a text with more
MOST = 128  # is a list, and states a number there if anywhere
_MANY = 308  # digits that a float can have before its point


# "12,34,567.8"
_COMMAS = r"(?:\d{1,3}(?:,\d{3}){0,8}|\d{1,2}(?:,\d{2}){1,8}),\d{3}(?![\d,])(?:\.\d{1,18})?"
# "1.234,5"
_POINTS_THEN_COMMA = r"\d{1,3}(?:\.\d{3}){1,8},\d{1,18}"
# "1.234.567"
_POINTS = r"\d{1,3}(?:\.\d{3}){2,8}(?![\d.])"
# "0,5"; "4.5.6" is no number
_PLAIN = rf"(?:\d{{1,{_MANY}}}(?!\d)(?:[.,]\d{{1,{_MANY}}})?|\.\d{{1,{_MANY}}})(?!\.?\d)"
# "x 10^-3"
_POWER = r"[eE]([-+]?\d{1,3})|\s?(?:×|x|\*|\\times)\s?10\s?(?:\^|\*\*)\s?\{?\s?([-+]?\d{1,3})\s?\}?"
# "-$": also before digits
_SIGN = r"(?<![A-Za-z0-9_.])([-+]?)\s?\\?[$€£¥₹]?"
# "/ 4"
_DIVISOR = r"\s?/\s?(\d{1,18})(?![\d/])"
# "percent"
_PERCENT = r"\\?[%‰]|(?:percent|per cent|pct)(?![A-Za-z])"
# "° C": a scale or a unit
_WORD = r"°\s?[CF](?![^\W\d_])|[^\W\d_]{1,12}|°"
# "^{2}": of a unit
_UNIT_POWER = r"(?:\^\{?([23])\}?|([23])(?!\d))"
# " per hour"
_PER = rf"(?:\s?/\s?|\sper\s)([^\W\d_]{{1,12}}){_UNIT_POWER}?"
# "-$1,234.5 million km^2 per year"
_NUMBER = re.compile(
    rf"{_SIGN}({_COMMAS}|{_POINTS_THEN_COMMA}|{_POINTS}"
    rf"|{_PLAIN})(?:{_DIVISOR})?(?:{_POWER})?\s?({_PERCENT})?"
    rf"\s?({_WORD})?(?:\s?(?!per\s)([^\W\d_]{{1,12}}))?(?:(?<=[A-Za-z]){_UNIT_POWER})?(?:{_PER})?"
)
# "1,234.5": the commas are marks of thousands
_GROUPED_BY_COMMAS = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d*)?\Z")
# "1.234,5": the points are
_GROUPED_BY_POINTS = re.compile(r"\d{1,3}(?:\.\d{3}){2,}\Z|\d{1,3}(?:\.\d{3})+,\d+\Z")
# " h ": between two parts of one quantity
_TOGETHER = re.compile(r"(?:[^\W\d_]|[\s,，.°]){1,16}")
# "so **about 12 km** in all"
_BOLD = place(r"\*\*[^*\d]{0,20}\Z", r"[^*\d\n]{0,20}\*\*")
# "4, 5, 6": numbers and nothing else
LIST = re.compile(r"[-+$€£¥%\d.,;/|、\s]*")


@dataclass(frozen=True)
class Quantity:
    """A number with what stands behind it."""

    written: float  # in the unit that it was written in; a percentage is divided by 100
    percent: bool = False  # written with a percent or per-mille sign
    unit: Unit = NO_UNIT

    @property
    def value(self) -> float:
        """In the base unit of its dimension."""
        return self.unit.to_base(self.written)


Located: TypeAlias = tuple[int, int, Quantity]  # start of a number, end of its digits, value


def quantities(text: str) -> list[Quantity]:
    """All numbers of a text, in order, with their scale, unit and percent sign applied."""
    return [quantity for _, _, quantity in _read(text)[1]]


def _read(text: str) -> tuple[str, list[Located]]:
    """The text as `_NUMBER` reads it, and its numbers; "1 h 30 min" is one."""
    plain = in_one_form(text)
    numbers: list[Located] = []
    for match in _NUMBER.finditer(plain):
        if (quantity := _quantity(match)) is None:
            continue
        start, end, whole = numbers[-1] if numbers else (0, 0, Quantity(math.nan))
        if _adds_to(whole, quantity) and _TOGETHER.fullmatch(plain, end, match.start()):
            numbers.pop()
            quantity = Quantity(whole.written + whole.unit.from_base(quantity.value), False, whole.unit)
        else:
            start = match.start()
        numbers.append((start, match.end(2), quantity))
    return plain, numbers


def _adds_to(whole: Quantity, part: Quantity) -> bool:
    """Whether a part in a smaller unit follows: feet and inches, hours and minutes."""
    unit = whole.unit
    smaller = part.unit
    same = unit.dimension == smaller.dimension in ("time", "length", "mass", "angle")
    return same and smaller.factor < unit.factor and 0 <= part.value < unit.factor and whole.written >= 0


def stated_number(completion: str, question: str = "") -> Quantity | None:
    """The number that a completion states; None if it states none, denies it or leaves it open.

    Of several, that of the part which names most of what the question names, and none of its own numbers.
    """
    answer = short_answer(completion, fold=False) or ""
    topic = named_by(question)
    asked = "|".join(map(re.escape, re.findall(r"\d[\d.,]*(?<=\d)", question))) or "(?!)"
    of_question = re.compile(rf"(?<![\d.,])(?:{asked})(?![.,]?\d)(?!\s?%)")

    def read(text: str) -> Quantity | None:
        text = without_asides(first_line(text))
        part = ("" if labels(text) else about(text, topic)) or text
        rests = (of_question.sub(" ", source) for source in (part, text))
        source = next((rest for rest in rests if re.search(r"\d", rest)), part)
        if source != part and re.search(DOUBTS.negation, part):
            return None
        return stated_quantity(source, (NUMBERS.concluded,))

    return stated(answer, read)


def stated_quantity(
    text: str, first: Sequence[NumberPlace] = (), never: Sequence[NumberPlace] = ()
) -> Quantity | None:
    """The number that a text states: in one of the places `first` if it can, in none of those of `never`.

    None if it states no number, denies it ("not 5") or leaves it open ("4.5 or 5").
    """
    text = without_asides(text)
    plain, numbers = meant(text, never)
    label, in_label = meant(after_label(text), never)
    chosen = [index for where in first for index in _in_place(plain, numbers, where)[-1:]]
    if not chosen and in_label:
        plain = label
        numbers = in_label
    colon = plain.rfind(":")  # of a list behind its name
    listed = [number.value for start, _, number in numbers if start > colon]
    if not numbers or (LIST.fullmatch(plain, colon + 1) and _are_guesses(listed)):
        return None
    index = chosen[0] if chosen else _chosen(plain, numbers, bool(in_label))
    return None if _is_choice(plain, numbers, index) else numbers[index][2]


def about(text: str, topic: frozenset[str]) -> str:
    """The parts of a text with a number that name most of what is asked for; "" if none does.

    A year that is asked for must be named where any part names it; where several are asked for, a part must
    name all of them, or none ("a difference of 12"). All of the text where it ends in a number that is said
    of nothing by itself ("3 here, 2 there, in all 5"); of a calculation only its end ("so 2 x 6 = 12 eggs").
    """
    parts = [(part, named_by(part)) for part in NUMBERS.clause.findall(text)]
    years = frozenset(filter(str.isdecimal, topic))
    several = len(years) > 1
    of_years = [pair for pair in parts if pair[1] >= years or (several and not pair[1] & years)]
    shared = [(part, len(named & topic)) for part, named in of_years or parts]
    best = max((number for _, number in shared), default=0)
    last, named_last = parts[-1] if parts else ("", frozenset())
    if not named_last or not (best or several):
        return text * (best > 0)
    if "=" in last and named_last & topic:
        return last
    return "\n".join(part for part, number in shared if number == best)


def _are_guesses(values: list[float]) -> bool:
    """Whether bare numbers in a row are guesses: they neither repeat one nor count up."""
    return not {after - before for before, after in pairwise(values)} <= {0, 1}


def asked_in(question: str) -> tuple[float, Unit]:
    """The scale and the unit in which a question asks for a number: "in million dollars", "in km"."""
    words = [word for groups in NUMBERS.asked_in.findall(question) for word in " ".join(groups).split()]
    scales = [scale for word in words if (scale := _scale(word.casefold()))]
    units = [unit for word in words if len(word) > 1 and (unit := find_unit(word)).dimension]
    return [*scales, 1.0][0], [*units, NO_UNIT][0]


def meant(text: str, never: Sequence[NumberPlace] = ()) -> tuple[str, list[Located]]:
    """The text and its numbers as `_read` gives them, without those that it denies."""
    plain, numbers = _read(text)
    numbers = [*numbers[:-MOST][:FIRST], *numbers[-MOST:]]
    left_out = {
        index for where in (*NUMBERS.not_stated, *never) for index in _in_place(plain, numbers, where)
    }
    return plain, [number for index, number in enumerate(numbers) if index not in left_out]


def _in_place(plain: str, numbers: list[Located], where: NumberPlace) -> list[int]:
    """Indices of the numbers that stand in a place."""
    return [
        index
        for index, (start, end, _) in enumerate(numbers)
        if where[0].search(plain[max(0, start - 48) : start]) and where[1].match(plain, end)
    ]


def _chosen(plain: str, numbers: list[Located], labelled: bool) -> int:
    """Index of the number that a text means; one behind a label may begin it."""
    if len(bold := _in_place(plain, numbers, _BOLD)) == 1:
        return bold[0]
    opens = "=" not in plain and not plain[: numbers[0][0]].strip(" *~≈($")
    if opens and (labelled or NUMBERS.aside.match(plain, numbers[0][1])):
        return 0
    copula = _in_place(plain, numbers, NUMBERS.after_copula)[-1:]
    if copula and NUMBERS.but.search(plain, numbers[copula[0]][1], numbers[-1][0]):
        return len(numbers) - 1
    years = _in_place(plain, numbers, NUMBERS.year)
    left = [index for index in range(len(numbers)) if index not in years] or [len(numbers) - 1]
    return [left[-1], *copula][-1]


def _is_choice(plain: str, numbers: list[Located], chosen: int) -> bool:
    """Whether a number is left open: one of two that the text names side by side."""
    for index in (chosen, chosen + 1):
        if 0 < index < len(numbers) and numbers[index - 1][2].value != numbers[index][2].value:
            between = plain[numbers[index - 1][1] : numbers[index][0]]
            before = plain[max(0, numbers[index - 1][0] - 16) : numbers[index - 1][0]]
            if NUMBERS.changed.search(before):
                continue
            if NUMBERS.choice.fullmatch(between) or (
                NUMBERS.between.search(before) and NUMBERS.joined.fullmatch(between)
            ):
                return True
    return False


def _quantity(match: re.Match[str]) -> Quantity | None:
    sign, digits, divisor, power, written_power, percent, *behind = match.groups()
    grouped = _GROUPED_BY_COMMAS.match(digits)
    if _GROUPED_BY_POINTS.match(digits):
        digits = digits.replace(".", "")
    value = float(digits.replace(",", "" if grouped else "."))
    if divisor:
        value = value / int(divisor) if int(divisor) else math.nan
    value *= float(f"1e{power or written_power or 0}") * (-1 if sign == "-" else 1)
    if percent:
        value /= 1000 if percent.endswith("‰") else 100
    scale, unit = _scale_and_unit(*behind)
    quantity = Quantity(value * scale, bool(percent), unit)
    return quantity if math.isfinite(quantity.value) and math.isfinite(quantity.written) else None


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
