"""Tool calls, in the grammars of ms-swift's agent templates; nothing is ever run. Linear in the text."""

import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from swift_grpo_ext.rewards.reading.answer import balanced_end
from swift_grpo_ext.rewards.reading.json_text import Json, decoded, literal
from swift_grpo_ext.rewards.reading.words import TOOLS

_MOST = 64  # calls and arguments that are read


class ToolCall(NamedTuple):
    """One call: the tool's name, and its arguments by name."""

    name: str
    arguments: dict[str, Json]


def tool_calls(text: str) -> list[ToolCall]:
    """Every tool call of a text, in order; empty if it has none."""
    for mark in TOOLS.noise:
        text = text.replace(mark, "")
    if tagged := list(_tagged(text)):
        return tagged
    for quote in TOOLS.quotes:
        text = text.replace(quote, '"')
    return list(_with_json(text))


def _tagged(text: str) -> Iterator[ToolCall]:
    starts = list(TOOLS.tagged.finditer(text))[:_MOST]
    for start, following in zip_longest(starts, starts[1:]):
        body = text[start.end() : following.start() if following else len(text)]
        yield ToolCall(start[start.lastindex or 1], dict(_arguments(body)) or dict(_plain_tags(body)))


def _arguments(body: str) -> Iterator[tuple[str, Json]]:
    start = TOOLS.argument.search(body)
    while start:
        end = TOOLS.end.search(body, start.end())
        stop = end.start() if end else len(body)
        yield start[start.lastindex or 1].strip(), _value(body[start.end() : stop])
        start = TOOLS.argument.search(body, stop)


def _plain_tags(body: str, depth: int = 0) -> Iterator[tuple[str, Json]]:
    """``<x>1</x><path><item>1</item><item>2</item></path>``."""
    start = TOOLS.plain_tag.search(body)
    while start:
        stop = body.find(f"</{start[1]}>", start.end())
        if stop < 0:
            return
        inner = body[start.end() : stop]
        items = [value for name, value in _plain_tags(inner, 1) if name == "item"] if depth == 0 else []
        yield start[1], items or _value(inner)
        start = TOOLS.plain_tag.search(body, stop)


def _with_json(text: str) -> Iterator[ToolCall]:
    """Objects with a name and arguments in them, or with the name before them."""
    start = text.find("{")
    for _ in range(_MOST):
        if start < 0:
            return
        value, end = _object_at(text, start)
        call = value.get("function", value)
        call = call if isinstance(call, dict) else value
        named = next((name for key in TOOLS.names if isinstance(name := call.get(key), str)), "")
        given = next((call[key] for key in TOOLS.arguments if key in call), None)
        given = next(iter(decoded(given, json.loads)), None) if isinstance(given, str) else given
        before = TOOLS.before_json.search(text[max(0, start - 128) : start])
        if named and isinstance(given, dict):
            yield ToolCall(named, given)
        elif before and value:
            yield ToolCall(before[1], value)
        else:
            end = start + 1
        start = text.find("{", end)


def _object_at(text: str, start: int) -> tuple[dict[str, Json], int]:
    """The object in JSON, or in Python's writing, that starts there, and where it ends; else an empty one."""
    try:
        return json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        end = start + 1 + max(0, balanced_end(text[start + 1 : start + 4096]) + 1)
        value = next(iter(literal(text[start:end])), None)
        return (value, end) if isinstance(value, dict) else ({}, start + 1)


def _value(raw: str) -> Json:
    """An argument's value: JSON where it is JSON, else its text."""
    text = raw.strip("\n")
    return next(iter(decoded(text.strip(), json.loads)), text)
