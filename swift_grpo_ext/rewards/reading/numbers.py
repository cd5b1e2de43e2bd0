"""Reading numbers the way people and models write them. Every pattern is bounded, so all of it is linear."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from swift_grpo_ext.rewards.reading.answer import short_answer
from swift_grpo_ext.rewards.reading.assertion import stated
from swift_grpo_ext.rewards.reading.doubt import NEGATED, NEGATION, REJECTED
from swift_grpo_ext.rewards.reading.number_forms import in_one_form
from swift_grpo_ext.rewards.reading.statement import after_label, first_line, labels, without_asides
from swift_grpo_ext.rewards.reading.tokens import named_by
from swift_grpo_ext.rewards.reading.units import NO_UNIT, Unit, find_unit, per, raised
from swift_grpo_ext.rewards.reading.words import QUANTITIES, any_case, by_word

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
Place: TypeAlias = tuple[re.Pattern[str], re.Pattern[str]]


def place(before: str = "", behind: str = "") -> Place:
    """Where a number stands: patterns of what is before it, to its start, and of what is behind it."""
    return any_case(before), any_case(behind)


# "the area is about 12"
_AFTER_COPULA = place(
    r"(?:\b(?:is|was|are|were|be|equals?)|[=≈为是]|等于|达到?)[\s*$:]{0,4}(?:(?:about|approximately"
    r"|approx\.?|around|roughly|nearly|almost|only|just|exactly|大约|约|~)[\s*$]{0,3})?[($€£¥]{0,2}\Z"
)
# "so there are 12"
CONCLUDED = place(
    r"(?:[=≈]|\bmakes?|\b(?:so|thus|therefore|hence),?(?: (?:there (?:are|is)|it is"
    r"|we have))?)\s*\**\s?\Z",
    r"\W{0,6}\Z",
)
# "they say it is 5, but I count 6"
_BUT = any_case(r"\b(?:but|however)\b (?:i|we|it|the|there|actually|in fact)\b")
# "so **about 12 km** in all"
_BOLD = place(r"\*\*[^*\d]{0,20}\Z", r"[^*\d\n]{0,20}\*\*")
# " of 20": behind the number that is meant
_ASIDE = re.compile(
    r",? (?:since|because)\b|[^\d.;,，]{0,24}(?:[(（]|\b(?:in|for|during|as of|out of|of|by"
    r"|compared with|up from|down from)\b) ?\d"
)
# "in million dollars"
_ASKED_IN = any_case(r"\bin ([^\W\d]{1,12}(?: [^\W\d]{1,12})?)|单位[是为:：(（]?([\u4e00-\u9fff]{1,3})")
# "4, 5, 6": numbers and nothing else
LIST = re.compile(r"[-+$€£¥%\d.,;/|、\s]*")
# " or maybe "
_OR = any_case(
    r"[.;]?[^\d.;=]{0,16}(?:\b(?:or|ou?|oder)\b|或者?|か)[^\d.;=]{0,24}| ?[-~、] ?|\s?(?:\bto\b|到|至)\s?"
    r"|[^\d.;=]{0,12}[,.;，。]?[^\d.;=]{0,12}(?:maybe|perhaps|possibly|let['’]s say|(?:could|might"
    r"|may)(?: also)? be"
    r"|也许|或许"
    r"|可能)[^\d=]{0,12}"
)
# " km and "
_AND = re.compile(r"[^\d.;=]{0,12}(?:\b(?:and|to|y|et|und)\b|和|到|至)[\s$*]{0,4}")
# "rose from "
_CHANGED = re.compile(r"\b(?:rose|grew|fell|went|dropped|(?:in|de)creased|declined|changed) from\s\Z")
# "sold in 2012"
_YEAR = place(r"\b(?:in|since|during|by|for|until)\s\Z", r"(?<=\b[12]\d{3})(?![\d%])")
# "between "
_BETWEEN = any_case(r"\b(?:between|from|entre|zwischen)\s?[$*]{0,3}\Z|介于\Z")


# "on the left 3 dogs, ": up to the end of what is said of one number
_CLAUSE = re.compile(
    r"(?:[^.!?。！？\n\d]|\.(?=\d)){0,120}\d(?:(?!\b(?:and|but|while|whereas|with|plus|versus"
    r"|vs|to [$€£]?\d[\d.,]* ?\w{0,8} in [12]\d{3})\b)[^.,;:!?。，；：！？、()\n和与而还以]|[.,](?=\d)"
    r"|(?<=\b[12]\d{3}):)*"
)
_OF_UNIT = r"(?:\s?[%‰°]|\s?[^\W\d]{1,12})?"  # what may stand between a number and what is said of it
# "more than "
BOUND = any_case(
    r"(?:\b(?:(?:more|fewer|less|greater|higher|lower|larger|smaller|bigger)(?: [a-z]{2,16})?"
    r" than(?: or equal to)?"
    r"|over|above|under|below"
    r"|at (?:the )?(?:very )?(?:least|most|minimum|best)|within|max(?:imum)?\.?|min(?:imum|\.)|up to"
    r"|upwards of|before|after|prior to|(?:minimum|maximum) of|beyond"
    r"|exceed(?:s|ing)?)"
    r"|[<>≤≥]=?|\\[lg](?:eq?|t)\b|不止|不到|不足|超过|超出|至少|至多|最少|最多|少于|多于|大于"
    r"|小于|高于|低于)有?[\s*$]{0,3}(?:about |the )?\Z|(?<![\w!])!\Z"
)
# What a text does not state: "it is not 12", "6 of the 12", "12 is wrong", "more than 12", "12 or more".
_NOT_STATED: tuple[Place, ...] = (
    place(NEGATED.pattern),
    place(r"\d(?: [a-z]{1,16})? (?:out )?of (?:the|these|those|all|its|their) \Z"),
    place(  # "5 is wrong", and what is said of the number itself: "5 is my lucky number"
        behind=rf"{_OF_UNIT}(?:{REJECTED.pattern}|\s(?:is|are) too )"
        r"|(?: [a-z]{2,16}){1,3} (?:in|of|on) my (?!view|count|opinion|left|right)|(?:\s?%)?\s(?:is|was|are"
        r"|were)\s(?:(?:an?|one of|among)\s(?!total|typo)|the (?:forecast|target|goal"
        r"|plan|prediction|number (?:of|on) (?:my|the page))\b|(?:my|your|his"
        r"|her|their|our"
        r"|what|how|where|when|why|used|known|said|written|printed|divisible|prime|odd|even|greater|less"
        r"|more|close|near|common|typical|usual|popular|possible|plausible)\b(?!\s(?:final "
        r"|total )?(?:answer|count|result|total)))"
    ),
    place(  # "Try 5", "Page 5": a suggestion, or the number of something else
        r"(?:\A|(?<!\.\.)[.!?\n]\s)\W{0,6}(?:try|options?|mindestens|guess|imagine|suppose|consider|pages?|figures?|fig|question"
        r"|step|image|picture|photo|chapter|section|table|task|problem|exercise|example|item|line|row"
        r"|version|day|week|month|year|room|bus|gate|route|platform|stage|level|lesson|slide|frame)\s#?\Z"
    ),
    place(BOUND.pattern),
    place(
        behind=(
            rf"-?ish\b|{_OF_UNIT}\s(?:at best|tops)\b|{_OF_UNIT}(?:\s?\+(?!\s?[\d(])|\s?[<≤](?!\w)"
            rf"|[\s*]{{0,3}}(?:(?:or|and) (?:something"
            rf"|whatever|another|other|more|fewer|less"
            rf"|over|above|under"
            r"|below|higher|lower)\b"
            r"|(?:and |or )?up(?:wards?)?\b(?! (?:from|by|\d))|(?:minimum|maximum|max)\b|at (?:the"
            r" )?(?:most|least|minimum|maximum"
            r"|very (?:most|least))\b))"
            r"|\s?(?:只|个|條|条|名|辆|人|件|%)?年?(?:以上|以下|以内|以前|以后|之前|之后|开外|(?:左右)?或(?:更多|以上))|\s?(?:多|余|來"
            r"|来)(?=[只个名辆件])"
        ),
    ),
)


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
        if source != part and re.search(NEGATION, part):
            return None
        return stated_quantity(source, (CONCLUDED,))

    return stated(answer, read)


def stated_quantity(text: str, first: Sequence[Place] = (), never: Sequence[Place] = ()) -> Quantity | None:
    """The number that a text states: in one of the places `first` if it can, in none of those of `never`.

    None if it states no number, denies it ("not 5") or leaves it open ("4.5 or 5").
    """
    text = without_asides(text)
    plain, numbers = _meant(text, never)
    label, in_label = _meant(after_label(text), never)
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

    All of it where it ends in a number that is said of nothing by itself ("3 here, 2 there, in all 5").
    """
    parts = _CLAUSE.findall(text)
    names = [named_by(part) for part in parts]
    best = max((len(named & topic) for named in names), default=0)
    if not best or not names[-1]:
        return text * (best > 0)
    return "\n".join(part for part, named in zip(parts, names, strict=True) if len(named & topic) == best)


def _are_guesses(values: list[float]) -> bool:
    """Whether bare numbers in a row are guesses: they neither repeat one nor count up."""
    return not {after - before for before, after in pairwise(values)} <= {0, 1}


def asked_in(question: str) -> tuple[float, Unit]:
    """The scale and the unit in which a question asks for a number: "in million dollars", "in km"."""
    words = [word for groups in _ASKED_IN.findall(question) for word in " ".join(groups).split()]
    scales = [scale for word in words if (scale := _scale(word.casefold()))]
    units = [unit for word in words if len(word) > 1 and (unit := find_unit(word)).dimension]
    return [*scales, 1.0][0], [*units, NO_UNIT][0]


def _meant(text: str, never: Sequence[Place]) -> tuple[str, list[Located]]:
    """The text and its numbers as `_read` gives them, without those that it denies."""
    plain, numbers = _read(text)
    numbers = [*numbers[:-MOST][:FIRST], *numbers[-MOST:]]
    left_out = {index for where in (*_NOT_STATED, *never) for index in _in_place(plain, numbers, where)}
    return plain, [number for index, number in enumerate(numbers) if index not in left_out]


def _in_place(plain: str, numbers: list[Located], where: Place) -> list[int]:
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
    if opens and (labelled or _ASIDE.match(plain, numbers[0][1])):
        return 0
    copula = _in_place(plain, numbers, _AFTER_COPULA)[-1:]
    if copula and _BUT.search(plain, numbers[copula[0]][1], numbers[-1][0]):
        return len(numbers) - 1
    years = _in_place(plain, numbers, _YEAR)
    left = [index for index in range(len(numbers)) if index not in years] or [len(numbers) - 1]
    return [left[-1], *copula][-1]


def _is_choice(plain: str, numbers: list[Located], chosen: int) -> bool:
    """Whether a number is left open: one of two that the text names side by side."""
    for index in (chosen, chosen + 1):
        if 0 < index < len(numbers) and numbers[index - 1][2].value != numbers[index][2].value:
            between = plain[numbers[index - 1][1] : numbers[index][0]]
            before = plain[max(0, numbers[index - 1][0] - 16) : numbers[index - 1][0]]
            if _CHANGED.search(before):
                continue
            if _OR.fullmatch(between) or (_BETWEEN.search(before) and _AND.fullmatch(between)):
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
