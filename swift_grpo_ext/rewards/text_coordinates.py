"""Boxes and points that a text writes out without JSON, as lists of four or two numbers.

``[x1, y1, x2, y2]``, ``(x1, y1), (x2, y2)``, ``<box>x1 y1 x2 y2</box>``, ``<point>x y</point>``,
``<points x1="10" y1="20" alt="cat">``, ``x=10, y=20``. Every pattern is bounded, so all of it is linear.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["box", "point", "both"]
"""What numbers stand for: with ``box``, four numbers or two pairs are a box; with ``point``, each pair is a
point; with ``both``, four numbers are a box and a pair is a point."""

_NUMBER = r"[-+]?(?:\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(?:[eE][-+]?\d{1,2})?"
_COMMA = r"\s{0,8}[,\s]\s{0,8}"
_OPEN, _CLOSE = r"[\[(>]\s{0,8}", r"\s{0,8}[\])<]"
_TWO = rf"({_NUMBER}){_COMMA}({_NUMBER})"
_FOUR = rf"{_TWO}{_COMMA}{_TWO}"
_PAIR = rf"{_OPEN}{_TWO}{_CLOSE}"
_BARE = {"box": re.compile(_FOUR + r"\Z"), "point": re.compile(_TWO + r"\Z")}
_FOURS = re.compile(f"{_OPEN}{_FOUR}{_CLOSE}")
_BOXES = re.compile(rf"{_OPEN}{_FOUR}{_CLOSE}|{_PAIR}\s{{0,8}},?\s{{0,8}}{_PAIR}")
_PAIRS = re.compile(_PAIR)
_NATIVE = re.compile(f"{_PAIR},{_PAIR}")  # the box of Qwen2-VL, which writes no space between its corners
_EQUALS = r"\s{0,4}[=:]\s{0,4}[\"']?"
_NAMED = re.compile(
    rf"\bx(?P<n>\d{{0,3}}){_EQUALS}({_NUMBER})[\"']?\s{{0,4}},?\s{{0,4}}y(?P=n){_EQUALS}({_NUMBER})"
)


def written_out(text: str, kind: Kind) -> list[list[float]]:
    """The numbers of each box or point, in order."""
    plain = unicodedata.normalize("NFKC", text)
    for shape in ("box", "point") if kind == "both" else (kind,):
        bare = _BARE[shape].match(plain)
        if bare:
            return [_numbers(bare)]
    matches = list((_BOXES if kind == "box" else _PAIRS).finditer(plain))
    if kind == "both":
        native = list(_NATIVE.finditer(plain))
        # Pairs that are not all corners of boxes are points: [(1, 2), (3, 4), (5, 6)].
        matches = list(_FOURS.finditer(plain)) or (native if len(matches) == 2 * len(native) else matches)
    if not matches and kind != "box":
        matches = list(_NAMED.finditer(plain))
    return [_numbers(match) for match in matches]


def _numbers(match: re.Match[str]) -> list[float]:
    names = match.groupdict().values()
    skipped = len(names)  # the number in a name such as x1 comes first
    return [float(number) for number in match.groups()[skipped:] if number is not None]
