"""The many writings of a number, brought to the one that `numbers` reads; all patterns are bounded."""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from swift_grpo_ext.rewards.reading.spelled_numbers import with_digits
from swift_grpo_ext.rewards.reading.words import any_case

_Match = re.Match[str]


class Form(NamedTuple):
    """One writing: its pattern, what takes its place, and an example of both (a test runs them)."""

    pattern: re.Pattern[str]
    replacement: str | Callable[[_Match], str]
    example: str
    becomes: str

    def rewritten(self, text: str) -> str:
        """The text with this form in the usual one."""
        return self.pattern.sub(self.replacement, text)


def _as_fraction(mixed: _Match) -> str:
    """One fraction; the text as it is if its fraction is not below one."""
    whole, part, parts = map(int, mixed.groups())
    return f"{whole * parts + part}/{parts}" if part < parts else mixed[0]


def _as_share(share: _Match) -> str:
    times, part = share.groups("half")
    return f"{times if times.isdigit() else 1}/{_PARTS[part.casefold()]}"


def _joined(groups: _Match) -> str:
    return groups[0].replace(" ", "")


# "ist": a word of a language in which 1.500 is 1500
_COMMA_LANGUAGE = any_case(
    r"\b(?:ist|sind|beträgt|liegt|etwa|rund|es de|fue|fueron|son|è|sono|são|foi|está|hay)\b"
)
# "1.500"
_POINT_OF_THOUSANDS = re.compile(r"(?<![\d.,])([1-9]\d{0,2})\.(\d{3})(?![\d.,])")
_PARTS = {"half": 2, "third": 3, "quarter": 4}
_SIGNS = str.maketrans({"−": "-", "–": "-", "＋": "+", "⁄": "/"})


def _forms(*table: tuple[str, str | Callable[[_Match], str], str, str]) -> list[Form]:
    return [Form(any_case(form[0]), *form[1:]) for form in table]


# Forms that are gone, or mean something else, once Unicode is folded (²  becomes 2).
BEFORE_FOLDING = _forms(
    (  # hours and minutes
        r"(?<![\w.])(\d{1,3})\s?h\s?([0-5]\d)(?![\w.])",
        r"\1 h \2 min",
        "2h30",
        "2 h 30 min",
    ),
    (  # marks between thousands
        r"(?<=\d)(?:[\u00a0\u2009\u202f'’]|\\,|\{,\})(?=\d{3}(?!\d))",
        "",
        "1’234",
        "1234",
    ),
    (  # degrees in LaTeX
        r"\^?\s?\{?\s?(?:\\circ|\\degree)\s?\}?|\\textdegree|[º˚]",
        "°",
        r"40^\circ",
        "40°",
    ),
    (  # upright text in LaTeX
        r"\\(?:text|mathrm|rm|unit|operatorname)\s?\{([^{}]{0,24})\}",
        r" \1",
        r"5\text{km}",
        "5 km",
    ),
    (r"\\[,;:! ]|(?<!\d)~|~(?!\d)", " ", r"5\,km", "5 km"),  # blanks in LaTeX
    (r"[¼-¾⅐-⅞]", r" \g<0>", "2½", "2 ½"),
    (r"[⁰¹²³⁴-⁹⁺⁻]{1,8}", r"^\g<0>", "m²", "m^²"),
)
FOLDED = _forms(
    (r"(?<=\n)[ \t]{0,4}[-+•*][ \t]{1,4}(?=\d)", "", "a\n- 10 dogs", "a\n10 dogs"),  # a list
    (  # the hours of a duration, from its minutes
        r"(?<=\d)(\s?(?:h|hrs?|hours?|小时|min|m|分钟?))(?=\d{1,2}\s?(?:m|s|分|秒))",
        r"\1 ",
        "1h30m",
        "1h 30m",
    ),
    (r"(?<![\d)] )(?<![\w)])(?:minus|negative)\s(?=\d)", "-", "minus 3", "-3"),
    (  # halves in words
        r"\ban? (hour|minute|day|week|year|mile) and a half\b",
        r"1.5 \1",
        "an hour and a half",
        "1.5 hour",
    ),
    (  # a share in words
        r"(?<!and )\b(?:(an?|one|\d)[ -](third|quarter|half)s?|half)(?= of | the |\W{0,4}\Z)",
        _as_share,
        "3 quarters",
        "3/4",
    ),
    (r"(?<![\d.])(\d{1,4}) and a half\b", r"\1.5", "7 and a half", "7.5"),
    (
        r"每(小时|分钟|秒|天)(\d{1,9}(?:\.\d{1,9})?)\s?(公里|千米|米)",
        r"\2\3/\1",
        "每小时72公里",
        "72公里/小时",
    ),
    (r"(?<=\d) point (?=\d)", ".", "34 point 5", "34.5"),
    (r"(\d{1,4})个?半(?=小时|天|年|公里)", r"\1.5", "1个半小时", "1.5小时"),
    (  # thousands set apart by blanks
        r"(?<![\d.,/] )(?<![\d.,/])\d{1,3}(?: \d{3}){1,5}(?![\d/]| \d)",
        _joined,
        "12 345",
        "12345",
    ),
    (  # a power of ten by itself
        r"(?<![\d.^×x*])(?<![×x*] )(?<!times )10\s?(?:\^|\*\*)\s?\{?\s?([-+]?\d{1,3})\s?\}?",
        r"1e\1",
        "10^6",
        "1e6",
    ),
    (  # a fraction in LaTeX
        r"\\[dt]?frac\s?(?:\{\s?(\d{1,18})\s?\}\s?\{\s?(\d{1,18})\s?\}|(\d)(\d)(?!\d))",
        r" \1\3/\2\4",
        r"\frac{1}{2}",
        " 1/2",
    ),
    (  # a whole number and a fraction
        r"(?<![\d.,/])(\d{1,9}) (\d{1,3})/(\d{1,3})(?![\d/])",
        _as_fraction,
        "2 1/2",
        "5/2",
    ),
)


def in_one_form(text: str) -> str:
    """The text with its numbers in digits, thousands together, fractions as ``1/2`` and powers as ``1e6``."""
    text = with_digits(text)
    if _COMMA_LANGUAGE.search(text):
        text = _POINT_OF_THOUSANDS.sub(r"\1\2", text)
    for form in BEFORE_FOLDING:
        text = form.rewritten(text)
    text = unicodedata.normalize("NFKC", text).translate(_SIGNS)
    for form in FOLDED:
        text = form.rewritten(text)
    return text
