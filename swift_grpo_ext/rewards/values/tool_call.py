"""Tool calls: JSON with a name and arguments, alone or in marks, and what Qwen3.5, GLM, Kimi and ReAct write.

>>> [call.name for call in read('<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>')]
['weather']
>>> read("<function=f><parameter=x>1</parameter></function>")
[ToolCall(name='f', arguments={'x': 1})]
>>> read('Action: find\nAction Input: {"x": 1}') == read("find(x=1)")
True

Nothing is ever run, and a call in which a key stands twice does not count.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.json_text import DECODER, Json, decoded, literal, once_each, strict
from swift_grpo_ext.rewards.values.call import call_in

GRAMMAR = 'tool call ({"name": ..., "arguments": {...}}, or a form of Qwen, GLM, Kimi or ReAct)'
MAX_CALLS = 64  # calls and arguments that are read
_NAME = r"([A-Za-z_][\w.-]{0,63})"
# Where a call in tags begins: Qwen3.5 and Qwen3-Coder, GLM.
_TAGGED = re.compile(rf"<function={_NAME}>|<tool_call>\s{{0,4}}{_NAME}")
_ARGUMENT = re.compile(
    r"(?:<parameter=([\w.-]{1,64})>|<arg_key>([^<>]{1,64})</arg_key>\s{0,4}<arg_value>)"
    r"(.*?)(?:</parameter|</arg_value|</function|</tool_call|\Z)",
    re.DOTALL,
)
# What stands between a name and its arguments in JSON: ReAct, Kimi.
_BEFORE_JSON = re.compile(
    rf"(?:Action:|<\|tool_call_begin\|>|\A)\s{{0,4}}(?:functions\.)?{_NAME}(?::\d{{1,4}})?"
    r"\s{0,4}(?:Action Input:|<\|tool_call_argument_begin\|>)\s{0,4}\Z"
)


class ToolCall(NamedTuple):
    """One call: the tool's name, and its arguments by name."""

    name: str
    arguments: dict[str, Json]


def read(text: str) -> list[ToolCall]:
    """Every tool call of a text, in order.

    Raises:
        Unread: It has none.
    """
    calls = read_all(text)
    if not calls and (call := call_in(text.strip())) and not call.bare:  # book(to="LAX"), as Python writes it
        calls = [ToolCall(call.name, call.named)]
    if not calls:
        raise Unread(text, GRAMMAR)
    return calls


def read_all(text: str) -> list[ToolCall]:
    """Every tool call of a text in tags or in JSON, in order; empty if it has none."""
    try:
        return list(_tagged(text)) or list(_with_json(text))
    except ValueError:  # an argument stands twice in one: none of them counts
        return []


def _tagged(text: str) -> Iterator[ToolCall]:
    starts = list(_TAGGED.finditer(text))[:MAX_CALLS]
    ends = [*(start.start() for start in starts[1:]), len(text)]
    for start, end in zip(starts, ends, strict=False):
        arguments = _ARGUMENT.findall(text[start.end() : end])
        pairs = [((first or second).strip(), _value(raw)) for first, second, raw in arguments]
        yield ToolCall(start[1] or start[2], once_each(pairs))


def _with_json(text: str) -> Iterator[ToolCall]:
    """Objects with a name and arguments in them, or with the name before them."""
    # Each of many unclosed braces would be read to the end of the text.
    end = 0 if text.count("{") - text.count("}") <= MAX_CALLS else len(text)
    for _ in range(MAX_CALLS):
        start = text.find("{", end)
        if start < 0:
            return
        value, end = _object_at(text, start)
        call = value["function"] if isinstance(value.get("function"), dict) else value
        arguments = decoded(call.get("arguments", call.get("parameters")), strict)
        if isinstance(call.get("name"), str) and isinstance(arguments, dict):
            yield ToolCall(call["name"], arguments)
        elif value and (before := _BEFORE_JSON.search(text[max(0, start - 128) : start])):
            yield ToolCall(before[1], value)


def _object_at(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The object that starts there, in JSON or, to the end of its line, in Python's quotes, and its end.

    ms-swift's ReAct writes Python's quotes. What is neither is an empty object.
    """
    try:
        return DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        line = text[start:].partition("\n")[0]
        value = decoded(line, literal)
        return (value, start + len(line)) if isinstance(value, dict) else ({}, start + 1)


def _value(raw: str) -> Json:
    """An argument's value: JSON where it is JSON, else its text."""
    text = raw.strip("\n")
    return decoded(text.strip(), strict, otherwise=text)
