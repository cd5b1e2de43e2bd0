r"""Mathematics as golds and models write it, brought to one LaTeX expression that Math-Verify reads whole.

Outside of dollar signs Math-Verify takes a number out of ``9 \pi``; so everything that is an expression and
nothing else gets dollar signs, and what stands in prose is cut out of it first.
"""

import re
from collections.abc import Callable

from swift_grpo_ext.rewards.reading.answer import boxed_together, last_boxed, unwrapped
from swift_grpo_ext.rewards.reading.spelled_numbers import with_digits
from swift_grpo_ext.rewards.reading.statement import after_label, fold_width
from swift_grpo_ext.rewards.reading.words import ANSWERS, DOUBTS, MATHEMATICS, NUMBERS, WRITING

MAX_WORDS = 60  # characters of an answer without a digit whose numbers in words are read
_SIGNS = str.maketrans(WRITING.latex)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_CALCULATED: dict[str, Callable[[re.Match[str]], str]] = {
    "@digits": lambda groups: re.sub(r"\D", "", groups[0]),
    "@raised": lambda run: f"^{{{run[0].translate(_RAISED)}}}",
}
# "x_1 = 2"
_ASSIGNED = re.compile(r"\s*([a-zA-Z])(?:_\{?\d\}?)?\s*=(?!=)\s*(.+?)\s*\Z", re.DOTALL)
# r"\frac"
_COMMAND = re.compile(r"\\[A-Za-z]{1,20}|\{[a-z]{3,10}\}|\\text\s?\{[^{}]{0,40}\}")
# "n/a"
_NOTHING = re.compile(r"\A[\s{}()\[\]?=.\-]*\Z|\A\s*[Nn]/[Aa]\s*\Z")
# "$x^2$"
_SPAN = re.compile(
    r"\$\$(.{1,400}?)\$\$|\$([^$]{1,400})\$|\\\((.{1,400}?)\\\)|\\\[(.{1,400}?)\\\]", re.DOTALL
)
# "**12**"
_BOLD = re.compile(r"\*\*([^*\n]{1,200})\*\*")
# "[45]."
_BRACKETED = re.compile(r"(?<!\\left)(?<!\\)\[([^\[\],]{1,200})(?<!\\right)\][\s.]{0,4}\Z")
# "-1,200.5"
_ONE_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])[-−]?\d+(?:[.,]\d+)*(?:/\d+)?\\?%?")


def latex(text: str) -> str:
    """An expression in LaTeX: signs of Unicode, "sqrt(2)", "x = 2 or x = -3", units behind it."""
    text = unwrapped(fold_width(text))
    for form in WRITING.to_latex:
        text = form.rewritten(text, _CALCULATED)
    text = text.translate(_SIGNS)
    for form in WRITING.in_latex:
        text = form.rewritten(text)
    return _values(text.strip().rstrip(" .,"))


def _values(text: str) -> str:
    """``x_1 = 2, x_2 = -3`` as the set of its values; anything else as it is."""
    parts = [_ASSIGNED.match(part) for part in text.split(",")] if text.count("=") > 1 else []
    if len(parts) < 2 or any(part is None or "=" in part[2] for part in parts):
        return text
    names = {part[1] for part in parts if part}
    values = [part[2] for part in parts if part]
    both = [value.replace("\\pm", sign) for value in values for sign in ("+", "-")[: 1 + ("\\pm" in value)]]
    return f"\\{{{', '.join(both)}\\}}" if len(names) == 1 else text


def is_expression(text: str) -> bool:
    """Whether a text in LaTeX is an expression and no prose."""
    return not (_NOTHING.match(text) or MATHEMATICS.words.search(_COMMAND.sub(" ", text)))


def in_dollars(text: str) -> str:
    """The text as Math-Verify is to read it: an expression gets dollar signs, prose stays as it is."""
    expression = latex(text)
    return f"${expression}$" if is_expression(expression) else text


def joined_boxes(text: str, between: re.Pattern[str] = ANSWERS.between_boxes) -> str:
    """The contents of the boxes that end a text one beside the other, as a list; "" if it is only one."""
    return ", ".join(map(latex, boxed_together(text, between)))


def gold_reading(text: str) -> str:
    """How a gold is read: the boxes that end it, what follows ``####``, an expression, or prose."""
    text = text.rpartition("####")[2].strip()
    joined = joined_boxes(text) or joined_boxes(text, MATHEMATICS.few_words)
    if joined:
        return f"$\\{{{joined}\\}}$"
    boxed = last_boxed(text)
    return in_dollars(text if boxed is None else boxed)


def answer_reading(text: str) -> str:
    """The part of an answer that states its result, as Math-Verify is to read it."""
    text = MATHEMATICS.rejected.sub("", text)
    if len(text) < MAX_WORDS and not re.search(r"[\d\\$]", text):
        text = with_digits(text, alone=True)
    if (boxed := last_boxed(text)) is not None:
        later = _stated(text[max(text.rfind("\\boxed"), 0) + len(boxed) :])
        if later and is_expression(latex(later)):
            return in_dollars(later)
        reading = in_dollars(boxed)
        return reading if reading.startswith("$") else f"\\boxed{{{boxed}}}"
    if "$" not in unwrapped(text) and is_expression(latex(text)):
        return in_dollars((_BRACKETED.match(text) and _bracketed(text)) or text)
    for source in filter(None, (_stated(text), text)):
        for read in (_only_bold, _bracketed, _last_span, str, _tail):
            if (part := read(source)) and is_expression(latex(part)):
                return in_dollars(part)
    return text


def _stated(text: str) -> str:
    """The sentence that announces the answer, from there on."""
    return MATHEMATICS.sentence.split(after_label(text)[:400], maxsplit=1)[0]


def _only_bold(text: str) -> str:
    """The result in bold, if one thing in bold is a result."""
    parts = [part for part in _BOLD.findall(text[-4000:]) if re.search(r"[0-9π]", part)]
    expressions = [part for part in parts if is_expression(latex(part))]
    if len(expressions) == 1:
        return str(expressions[0])
    return str(parts[0]).rpartition("=")[2] if len(parts) == 1 else ""


def _bracketed(text: str) -> str:
    """The result in brackets at the end, as geometry3k's prompts want it: ``The angle is [45].``"""
    result = _BRACKETED.search(text)
    return result[1].strip(" $") if result else ""


def _last_span(text: str) -> str:
    """The last expression in dollar signs, with those that it is listed with."""
    run: list[str] = []
    last = len(text)
    for span in reversed(list(_SPAN.finditer(text))):
        if not run and re.fullmatch(r"\$[A-Za-z]\$", span[0]) and re.search(r"\d", text[span.end() :]):
            continue  # "The largest $n$ is 34."
        if (
            not run
            and MATHEMATICS.given.search(text[max(0, span.start() - 8) : span.start()])
            and _SPAN.search(text, 0, span.start())
        ):
            continue  # "It is $2\\pi r$ for $r = 1$."
        if run and not ANSWERS.between_boxes.match(text[span.end() : last]):
            break
        run = [next(filter(None, span.groups())), *run]
        last = span.start()
    return ", ".join(run)


def _tail(text: str) -> str:
    """What follows the last "is" of the last sentence that holds a digit; of prose, its only number."""
    sentences = [
        part for part in MATHEMATICS.sentence.split(text[-2000:]) if part and re.search(r"[0-9]", part)
    ]
    if not sentences:
        return ""
    places = list(MATHEMATICS.copula.finditer(sentences[-1]))
    result = sentences[-1][places[-1].end() :].strip(" ,*") if places else sentences[-1]
    last_side = result.rpartition("=")[2]
    if last_side != result and is_expression(latex(last_side)):
        result = last_side
    numbers = _ONE_NUMBER.findall(result)
    return result if is_expression(latex(result)) or len(numbers) != 1 else numbers[0]


# r"\frac"
_OPERATORS = re.compile(r"\\(?:[dt]?frac|sqrt|times|cdot|pi|left|right|div|pm|circ)(?![A-Za-z])")
# "="
_EQUALS = re.compile(r"(?<![<>!\\])=(?!=)")


def denies(text: str, reading: str) -> bool:
    """Whether a text says what its result is not: "not 12", ``\\neq 12``; or gives a bound, ``> 12``."""
    if MATHEMATICS.unequal.search(reading) or MATHEMATICS.unequal.search(last_boxed(text) or ""):
        return True
    value = reading.strip("$ ")
    if value == text.strip("$ "):  # prose, of which Math-Verify takes the last number
        value = [value, *_ONE_NUMBER.findall(value)][-1]
    start = max(text.rfind("\\boxed"), 0) if "\\boxed" in text else text.rfind(value)
    before = text[max(0, start - 48) : max(0, start)]
    behind = text[start + len(value) : start + len(value) + 24] if start >= 0 else ""
    before = before.rstrip(" $")
    worded = "\\" not in before and before[-1:].isalpha()  # "at most", not ``x \\leq``
    bound = NUMBERS.bound.search(before) if worded else None
    return (DOUBTS.negated.search(before) or bound or DOUBTS.rejected.match(behind)) is not None


def constant_sides(reading: str) -> list[str]:
    """The sides of an equation but the last that have no letter, in dollar signs: ``11`` of ``11 = 12``."""
    sides = _EQUALS.split(reading.strip("$ "))[:-1]
    plain = [(side, _OPERATORS.sub("", side)) for side in sides]
    return [
        f"${side}$" for side, rest in plain if re.search(r"\d", rest) and not re.search(r"[A-Za-z,\\]", rest)
    ]
