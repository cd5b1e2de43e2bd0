"""Moments of a video: spans of time in a text, in seconds."""

import json
import re
import unicodedata
from itertools import islice, pairwise
from typing import TypeAlias

from swift_grpo_ext.rewards.reading.answer import last_fenced
from swift_grpo_ext.rewards.reading.assertion import is_denied, stated
from swift_grpo_ext.rewards.reading.json_text import Json
from swift_grpo_ext.rewards.reading.words import DOUBTS, SPANS

MAX_SECONDS = 1e7
MAX_SPANS = 256  # of a text that are read


Span: TypeAlias = tuple[float, float]


_SECONDS = (3600, 60, 1, 60, 1, 1, 3600, 60, 1)  # of one in each group of `_WRITTEN`


# "0:01:02,500"
_SUBTITLE = re.compile(r"(\d:\d{2}:\d{2}),(\d{3})(?!\d)")


_BETWEEN_DIGITS = str.maketrans({"–": "-", "—": "-", "~": "-", "～": "-"})


def parse_spans(text: str) -> list[Span]:
    """The spans of a text in seconds: JSON by its keys, else "10 to 20", else its times in order, two by two.

    Empty if a time has no partner; an inverted or empty span is left out.
    """
    plain = unicodedata.normalize("NFKC", text).translate(_BETWEEN_DIGITS)
    if (times := _from_json(plain)) is None:
        times = stated(plain, _in_prose) or []
    if len(times) % 2:
        return []
    spans = zip(times[::2], times[1::2], strict=True)
    return [(start, end) for start, end in spans if start < end <= MAX_SECONDS]


def _in_prose(text: str) -> list[float] | None:
    """The times of pairs such as "10 to 20", else all times; None if there are none."""
    plain = _in_seconds(_SUBTITLE.sub(r"\1.\2", text))
    pairs = list(islice(SPANS.pairs.finditer(plain), MAX_SPANS))
    meant = [
        pair
        for pair in pairs
        if not (is_denied(plain, pair.start()) or DOUBTS.rejected.match(plain, pair.end()))
    ]
    if (not pairs and SPANS.choice.search(plain)) or any(
        SPANS.choice.search(plain, one.end(), other.start()) for one, other in pairwise(meant)
    ):
        return None
    paired = [float(time) for pair in meant for time in pair.groups()[::2] if time]
    return (paired if pairs else _seconds(plain)) or None


def _in_seconds(text: str) -> str:
    """The text with every time that has a unit or a colon as ``90.0s``."""
    return SPANS.written.sub(
        lambda time: (
            f"{sum(one * float(n or 0) for one, n in zip(_SECONDS, time.groups(), strict=True)):.9f}s"
        ),
        text,
    )


def _times(text: str) -> list[float]:
    """All times of a text in seconds; if some have a unit or a colon, only those."""
    return _seconds(_in_seconds(text))


def _seconds(text: str) -> list[float]:
    """All times of a text whose times with a unit or a colon are written as ``90.0s``."""
    first = islice(SPANS.time.finditer(text), 2 * MAX_SPANS)
    times = [time for time in first if not is_denied(text, time.start())]
    return [float(time[1]) for time in times if time[2]] or [float(time[1]) for time in times]


def _from_json(text: str) -> list[float] | None:
    """The times of JSON with keys, two by two; None if the text is no such JSON."""
    body = last_fenced(text).strip()
    if not (body.startswith(("{", "[")) and '"' in body):
        return None
    try:
        return _walked(json.loads(body))
    except (ValueError, RecursionError):
        return None


def _walked(value: Json) -> list[float]:
    if isinstance(value, str):
        return [time for span in parse_spans(value) for time in span]
    inner = value if isinstance(value, list) else []
    if len(inner) == 2 and all(isinstance(time, (int, float, str)) for time in inner):
        ends = [_times(str(time)) for time in inner]
        return [time[0] for time in ends] if all(len(time) == 1 for time in ends) else []
    if isinstance(value, dict):
        plain = {str(key).casefold(): part for key, part in value.items()}
        ends_given = [
            next((plain[key] for key in keys if key in plain), None) for keys in (SPANS.starts, SPANS.ends)
        ]
        if None not in ends_given:
            return _walked(ends_given)
        holders = [part for key, part in plain.items() if any(word in key for word in SPANS.holders)]
        inner = holders or list(plain.values())
    return [time for part in inner[:1000] for time in _walked(part)]
