"""Moments of a video: two times, the earlier first, or several such pairs.

>>> read("12.5 to 30 s"), read("[12.5, 30]"), read("00:12 - 01:05.5"), read("from 90 to 130 seconds")
([(12.5, 30.0)], [(12.5, 30.0)], [(12.0, 65.5)], [(90.0, 130.0)])
>>> read('{"start": 1, "end": "0:02.5"}'), read('[{"timestamp": [1, 2]}]'), read("1-2, 3-4")
([(1.0, 2.5)], [(1.0, 2.0)], [(1.0, 2.0), (3.0, 4.0)])

Times are seconds or clock times. A pair whose end comes first is left out. Nothing else may stand there:
``not from 3 to 5``, ``3 to 5 or 6 to 8``, ``about 3 to 5``, ``1 min to 2 min``.
"""

import math
import re
from typing import TypeAlias

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.json_text import Json, decoded, literal, strict

GRAMMAR = "span of time (two times: 12.5 to 30 s, [12.5, 30], 00:12 - 00:30)"
MAX_SECONDS = 1e7
MAX_SPANS = 256
STARTS = ("start", "start_time")
ENDS = ("end", "end_time")
Span: TypeAlias = tuple[float, float]

_N = r"\d{1,9}(?:\.\d{1,9})?"
_TIME = rf"((?:\d{{1,3}}:)?\d{{1,4}}:{_N}|{_N})(?:\s?s(?:ec(?:ond)?s?)?)?"
_SPAN = re.compile(
    rf"[\[(<]?\s?(?:from )?{_TIME}>?\s{{0,2}}(?:-|–|—|~|,|to)\s{{0,2}}<?{_TIME}\s?[\])>]?", re.IGNORECASE
)
_BETWEEN = re.compile(r"\s{0,4}[,;\n]\s{0,4}(?:and )?| and ")


def read(text: str) -> list[Span]:
    """Read a text as spans, in seconds.

    Raises:
        Unread: It is not spans, or each ends before it starts.
    """
    value = decoded(text, strict, literal) if text[:1] in ("[", "{", "(") else None
    times = _walked(value) or _written(text)
    spans = [span for span in times if span[0] < span[1] <= MAX_SECONDS]
    if not 0 < len(spans) <= MAX_SPANS:
        raise Unread(text, GRAMMAR)
    return spans


def _written(text: str) -> list[Span]:
    """Read a text as spans, one after the other; empty for anything else."""
    spans: list[Span] = []
    at = 0
    while at < len(text) and len(spans) <= MAX_SPANS:
        match = _SPAN.match(text, at)
        between = _BETWEEN.match(text, match.end()) if match else None
        if match is None or (between is None and match.end() < len(text)):
            return []
        spans.append((_seconds(match[1]), _seconds(match[2])))
        at = between.end() if between else len(text)
    return spans


def _seconds(time: str) -> float:
    return math.fsum(float(part) * 60**power for power, part in enumerate(reversed(time.split(":"))))


def _walked(value: Json, depth: int = 0) -> list[Span]:
    """The spans of decoded JSON."""
    if isinstance(value, str):
        return _written(value)
    if isinstance(value, dict):
        ends = [value[key] for keys in (STARTS, ENDS) for key in keys if key in value]
        value = ends if len(ends) == 2 else list(value.values())
    if not isinstance(value, list) or depth > 4:
        return []
    spans = _written(" to ".join(map(str, value))) if len(value) == 2 else []
    return spans or [span for part in value for span in _walked(part, depth + 1)]
