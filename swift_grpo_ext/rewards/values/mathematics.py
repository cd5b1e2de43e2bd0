r"""Mathematics: an expression, an equation whose last side counts, several between commas, or a set.

Math-Verify reads it, after signs that models write are made LaTeX: ``10√{2}`` is not 10.

>>> [latex(text) for text in ("10√{2}", "5sqrt(3)", "2π r^2", "12 cm^2", "½")]
['10\\sqrt{2}', '5\\sqrt{3}', '2\\pi  r^2', '12', '\\frac{1}{2}']
>>> equal(latex("x = 2 or x = -3"), latex("-3, 2"))
True

Prose does not count: ``the sum of 3 and 4``, ``about 12``; nor does a bound, a denial or a doubt, ``> 12``,
``\neq 12``, ``12?``, and a calculation counts only if each side with numbers alone is right: ``11 = 12`` is
not 12. No value is taken out of an expression: ``12~13`` is not 12, nor is ``101_2`` what ``101_3`` is.
"""

import re
from functools import lru_cache
from typing import Any

from swift_grpo_ext.rewards.contract import Unread

GRAMMAR = "mathematical expression"
MAX_CHARS = 4_096  # of an expression that Math-Verify is given
_SIGNS = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "π": r"\pi ",
        "≤": r"\le ", "≥": r"\ge ", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "±": r"\pm ",
        "θ": r"\theta ", "°": r"^{\circ}", "，": ", ", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
    }
)  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_UNITS = (
    r"(?:mm|cm|dm|km|kg|mg|ml|units?|degrees?|inch(?:es)?|feet|ft|meters?|metres?|miles?|hours?|minutes?|seconds?"
    r"|dollars?|cents?|years?|days?|people|ways|m)"
    r"(?:(?:/| per )(?:s|h|min|second|minute|hour|day)(?![A-Za-z]))?"
)
# `_TYPED` applies before signs become LaTeX, `_FORMS` after.
_TYPED = (
    (re.compile(r"(?<=\d)(?:\\,|\{,\}|[ \u00a0\u202f])(?=\d{3}(?!\d))"), ""),
    (re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]{1,8}"), lambda run: f"^{{{run[0].translate(_RAISED)}}}"),
    (
        re.compile(
            r"√\s?(?:\(([^()]{1,64})\)|\{([^{}]{1,64})\}|(\d{1,12}|[a-z]))"
            r"|(?<![A-Za-z\\])sqrt\s?[({]([^(){}]{1,64})[)}]"
        ),
        lambda root: rf"\sqrt{{{next(filter(None, root.groups()))}}}",
    ),
)
_FORMS = (
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\\(?:text(?:rm)?|mathrm|mbox)\s?\{[\s~]*([^{}]{0,80})\}"), r" \1"),
    (
        re.compile(
            r"(?:(?<=[\d)}])|(?<=\\pi ))(?:\\[,;: ]|[\s~]){0,4}(?:square |cubic |sq\.? )?"
            rf"{_UNITS}(?![A-Za-z])"
            r"(?:\s?\^?\s?\{?[23]\}?)?\s*\Z|(?:(?<=[\d)}])|(?<=\\pi ))\s?[\u4e00-\u9fff]{1,8}\s*\Z",
            re.IGNORECASE,
        ),
        "",
    ),
    (re.compile(r"(?<![A-Za-z\\])pi\b"), r"\\pi "),
)
_COMMAND = re.compile(r"\\[A-Za-z]{1,20}|\{[a-z]{3,10}\}")
_WORDS = re.compile(r"(?<![A-Za-z\\])(?:[A-Za-z]{3}|(?i:is|so|it|we|to|of|in|at|by|be|an|no)\b)")
_NOTHING = re.compile(r"[\s{}()\[\]?=.\-]*|\s*[Nn]/[Aa]\s*")
_BOUND = re.compile(
    r"\s*(?:[<>≤≥≠~≈]|\\(?:[gl]eq?|neq?|neg|lnot|approx|not|sim)\b)|.*(?:\\neq?\b|\\not\s?=|≠|!=|\?|\d\s?[-+/=]\s*\Z)",
    re.DOTALL,
)
_OPERATORS = re.compile(r"\\(?:[dt]?frac|sqrt|times|cdot|pi|left|right|div|circ)(?![A-Za-z])")
# What Math-Verify reads an expression without: the next line, what a tie or two dots join, the base of a
# number, commands but these.
_LEFT_OUT = re.compile(
    r"\d\s?(?:(\\\\|~\s?[\d-]|\.\.)|_\s?\{?(\d{1,2}))|\\(?!(?:"
    r"[dtc]?frac|sqrt|pi|times|cdot|div|left|right|[bB]igg?[lr]?|circ|degree|infty|cup|cap|setminus|emptyset"
    r"|varnothing|pm|mp|[lg][et]q?|[lg]eqslant|in|approx|(?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|log|ln|lg|exp|sum|prod"
    r"|int|lim|[dt]?binom|max|min|gcd|lcm|[lr](?:floor|ceil|vert|brace|brack)|vert|angle|triangle|text|math[a-z]+"
    r"|operatorname|[lL]arge|q?quad|displaystyle|limits|overline|bar|vec|hat|begin|end|boxed|alpha|beta|gamma|delta|epsilon"
    r"|theta|lambda|mu|nu|rho|sigma|tau|phi|varphi|omega)(?![A-Za-z]))([A-Za-z]+)"
)
_EQUALS = re.compile(r"(?<![<>!\\])(?:=(?!=)|\\approx|≈)")


def latex(text: str) -> str:
    """An expression in LaTeX: signs of Unicode, "sqrt(2)", without a unit behind it."""
    for pattern, form in _TYPED:
        text = pattern.sub(form, text)
    text = text.translate(_SIGNS)
    for pattern, form in _FORMS:
        text = pattern.sub(form, text)
    return text.strip().rstrip(" .,")


def read(text: str) -> str:
    """Read a text as an expression, in LaTeX.

    Raises:
        Unread: It is prose, a bound, a denial, or holds nothing.
    """
    expression = latex(text) if len(text) <= MAX_CHARS else ""
    if (
        not expression
        or not expression.isascii()  # Math-Verify would read what stands before another sign
        or _NOTHING.fullmatch(expression)
        or _BOUND.match(text)
        or _WORDS.search(_COMMAND.sub(" ", expression))
    ):
        raise Unread(text, GRAMMAR)
    return expression


@lru_cache(maxsize=1024)
def parsed(expression: str) -> tuple[Any, ...]:
    """An expression in LaTeX, parsed by Math-Verify, which has no time limit off the main thread."""
    from math_verify import parse

    return tuple(parse(f"${expression}$", parsing_timeout=None))


def equal(gold: str, answer: str) -> bool:
    """True if two expressions in LaTeX are equal, and every side of the answer with numbers alone, too."""
    from math_verify import verify

    if gold == answer:
        return True
    if {*_LEFT_OUT.findall(answer)} - {*_LEFT_OUT.findall(gold)}:
        return False
    # x < 3 for (-oo, 3), too
    options: dict[str, Any] = {"timeout_seconds": None, "allow_set_relation_comp": True}
    sides = [answer, *([] if _EQUALS.search(gold) else _constant_sides(answer))]
    return all(verify(list(parsed(gold)), list(parsed(side)), **options) for side in sides)


def _constant_sides(expression: str) -> list[str]:
    """The sides of an equation but the last that have numbers and no letter: ``11`` of ``11 = 12``."""
    sides = [(side, _OPERATORS.sub("", side)) for side in _EQUALS.split(expression)[:-1]]
    return [side for side, rest in sides if re.search(r"\d", rest) and not re.search(r"[A-Za-z,\\]", rest)]
