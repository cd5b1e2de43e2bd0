"""Tool calls, in the grammars of ms-swift's agent templates; nothing is ever run. Linear in the text."""

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from swift_grpo_ext.rewards.reading.answer import balanced_end
from swift_grpo_ext.rewards.reading.json_text import Json, decoded, literal
from swift_grpo_ext.rewards.reading.words import TOOLS

_NAME = r"([A-Za-z_][\w.-]{0,63})"


# "<function=click>": Qwen3-Coder, Qwen3.5, Seed-OSS; MiniMax, DeepSeek and MiniCPM write ``name="click"``
# "<tool_call>click": GLM-4.5, Hunyuan, Spark, Ling
# "call tool=\"click\"": Kimi K3
_TAGGED = re.compile(
    rf"<(?:function|invoke)(?:=| name=)\"?{_NAME}\"?\s{{0,4}}>|<tool_call(?::\w{{1,16}})?>\s{{0,4}}{_NAME}"
    rf"|call tool=\"{_NAME}\""
)
# "<parameter=x>": also "<param name=\"x\" type=\"int\">", "<arg_key>x</arg_key><arg_value>"
_ARGUMENT = re.compile(
    r"<param(?:eter)?(?:=| name=)\"?([\w.-]{1,64})\"?[^<>]{0,64}>"
    r"|<(?:arg|param)_key[^<>]{0,16}>([^<>]{1,64})</(?:arg|param)_key[^<>]{0,16}>"
    r"\s{0,4}<(?:arg|param)_value[^<>]{0,16}>"
    r"|argument key=\"([\w.-]{1,64})\"[^<>]{0,64}<\|sep\|>"
)
# "</parameter>"
_END = re.compile(r"</(?:param|arg)|<\|close\|>argument|</function|</invoke|</tool_call")
# "<x>": an argument that is a tag of its own, as MiniMax M3 writes it
_PLAIN_TAG = re.compile(rf"<{_NAME}>")
# "Action: click\nAction Input: ": ReAct; Qwen's ✿FUNCTION✿, DeepSeek's and Kimi's marks, Gemma's ``call:``
_BEFORE_JSON = re.compile(
    r"(?:Action:|✿FUNCTION✿:|<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?|<\|tool_call_begin\|>|\bcall:"
    r"|\A)\s{0,4}(?:functions\.)?"
    rf"{_NAME}(?::\d{{1,4}})?"
    r"(?:\s{0,4}(?:Action Input:|✿ARGS✿:|<｜tool▁sep｜>|<\|tool_call_argument_begin\|>|\[ARGS\]"
    r"|\s```(?:json)?)\s{0,4}|\s{0,4})\Z"
)
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
    starts = list(_TAGGED.finditer(text))[:_MOST]
    for start, following in zip_longest(starts, starts[1:]):
        body = text[start.end() : following.start() if following else len(text)]
        yield ToolCall(start[start.lastindex or 1], dict(_arguments(body)) or dict(_plain_tags(body)))


def _arguments(body: str) -> Iterator[tuple[str, Json]]:
    start = _ARGUMENT.search(body)
    while start:
        end = _END.search(body, start.end())
        stop = end.start() if end else len(body)
        yield start[start.lastindex or 1].strip(), _value(body[start.end() : stop])
        start = _ARGUMENT.search(body, stop)


def _plain_tags(body: str, depth: int = 0) -> Iterator[tuple[str, Json]]:
    """``<x>1</x><path><item>1</item><item>2</item></path>``."""
    start = _PLAIN_TAG.search(body)
    while start:
        stop = body.find(f"</{start[1]}>", start.end())
        if stop < 0:
            return
        inner = body[start.end() : stop]
        items = [value for name, value in _plain_tags(inner, 1) if name == "item"] if depth == 0 else []
        yield start[1], items or _value(inner)
        start = _PLAIN_TAG.search(body, stop)


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
        before = _BEFORE_JSON.search(text[max(0, start - 128) : start])
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
