"""Calls in a text, such as ``drag(start_box='(1,2)')``, with their arguments; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from swift_grpo_ext.rewards.action_words import KINDS, word_of
from swift_grpo_ext.rewards.regions import literal

_CALL = re.compile(r"(?<![A-Za-z0-9_])((?:[A-Za-z]{2,16}\.)?[A-Za-z][A-Za-z_0-9]{1,30})\s{0,4}\(")
_ARGUMENT = re.compile(
    r"\s{0,8}(?:([A-Za-z_]\w{0,40})\s{0,4}=\s{0,4})?"
    r"(\"(?:[^\"\\]|\\.){0,4096}\"|'(?:[^'\\]|\\.){0,4096}'"
    r"|(?:\[[^\[\]]{0,256}\]|\[\[[^\[\]]{0,256}\]\]|\([^()]{0,256}\))|[^,()\[\]\"'=]{1,256})\s{0,8}(,|\)|\Z)",
    re.DOTALL,
)
_MAX_ARGUMENTS = 16
_ESCAPED = re.compile(r"\\([nt\"'\\])")
_ESCAPES = {"n": "\n", "t": "\t"}


def calls_in(text: str) -> Iterator[dict[str, object]]:
    """Every call in a text with its arguments, those without a name as ``text``, ``x`` and ``y``."""
    at, start = 0, _CALL.search(text)
    while start:
        at = start.end()
        name = word_of(start[1])
        found: dict[str, Any] = {"action": start[1]}
        bare: list[Any] = []
        closed = text[at : at + 1] == ")"
        for _ in range(_MAX_ARGUMENTS):
            argument = None if closed else _ARGUMENT.match(text, at)
            if argument is None:
                break
            key, raw, following = argument.groups()
            value = _value(raw.strip())
            if key:
                found[key] = value
            else:
                bare.append(value)
            at, closed = argument.end(), following != ","
        if name in KINDS or (closed and text[: start.start()].strip() == ""):
            yield found | _positional(name, bare)
        start = _CALL.search(text, at)


def _positional(name: str, bare: list[object]) -> dict[str, object]:
    """Arguments without names: places, numbers as x and y, texts."""
    numbers = [value for value in bare if isinstance(value, (int, float))]
    texts = [value for value in bare if isinstance(value, str)]
    found: dict[str, Any] = {}
    kind = KINDS.get(name, ("", ""))[0]
    if kind in ("scroll", "hscroll") and len(numbers) == 1:
        found["pixels"] = numbers[0]
    elif kind == "wait" and len(numbers) == 1:
        found["seconds"] = numbers[0]
    elif len(numbers) == 2:
        found["coordinate"] = numbers
    elif len(numbers) == 4:
        found |= (
            {"start": numbers[:2], "end": numbers[2:]} if kind in ("drag", "swipe") else {"bbox": numbers}
        )
    places = [value for value in bare if isinstance(value, list)]
    found |= dict(zip(("coordinate", "coordinate2"), places, strict=False))
    if texts:
        found["text" if kind != "key" else "keys"] = " ".join(texts) if kind == "key" else texts[0]
    return found


def _value(raw: str) -> object:
    if raw[:1] in "\"'" and len(raw) > 1:
        return _ESCAPED.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), raw[1:-1])
    values = literal(raw) if raw[:1] in "[(-.0123456789" else []
    value = values[0] if values else raw
    return list(value) if isinstance(value, tuple) else value
