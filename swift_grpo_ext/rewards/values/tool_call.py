"""Tool calls, in the grammars of ms-swift's agent templates.

>>> [call.name for call in read('<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>')]
['weather']
>>> read("<function=f><parameter=x>1</parameter></function>")
[ToolCall(name='f', arguments={'x': 1})]
>>> read('Action: find\\nAction Input: {"x": 1}') == read("find(x=1)")
True

Nothing is ever run, and a call in which a key stands twice does not count.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.json_text import DECODER, Json, decoded, literal, once_each, strict
from swift_grpo_ext.rewards.values.call import call_in

GRAMMAR = 'tool call ({"name": ..., "arguments": {...}}, or the model family\'s own form)'
MAX_CALLS = 64  # calls and arguments that are read
_NOISE = ("]<]minimax[>[", "｜DSML｜ ", "｜DSML｜", "[TOOL_CALLS]")
_GEMMA = "_call>call:"  # Gemma's calls have keys without quotes, and quotes of their own
_GEMMA_QUOTE = re.compile(r'<\|"\|>|<escape>')
_BARE_KEY = re.compile(r"(?<=[{,])\s{0,4}(\w{1,64}):")
_NAMES = ("name", "function", "tool", "tool_name", "action")
_GIVEN = ("arguments", "parameters", "args", "input", "action_input", "tool_input")
_NAME = r"([A-Za-z_][\w.-]{0,63})"
# Where a call begins: Qwen3-Coder, Qwen3.5, Seed-OSS; MiniMax, DeepSeek and MiniCPM; GLM-4.5, Hunyuan, Ling;
# Kimi K3.
_TAGGED = re.compile(
    rf"<(?:function|invoke)(?:=| name=)\"?{_NAME}\"?\s{{0,4}}>|<tool_call(?::\w{{1,16}})?>\s{{0,4}}{_NAME}"
    rf"|call tool=\"{_NAME}\""
)
_ARGUMENT = re.compile(
    r"(?:<param(?:eter)?(?:=| name=)\"?([\w.-]{1,64})\"?[^<>]{0,64}>"
    r"|<(?:arg|param)_key[^<>]{0,16}>([^<>]{1,64})</(?:arg|param)_key[^<>]{0,16}>\s{0,4}<(?:arg|param)_value[^<>]{0,16}>"
    r"|argument key=\"([\w.-]{1,64})\"[^<>]{0,64}<\|sep\|>)"
    r"(.*?)(?:</(?:param|arg)|<\|close\|>argument|</function|</invoke|</tool_call|\Z)",
    re.DOTALL,
)
# ReAct; Qwen's, DeepSeek's and Kimi's marks, Gemma's ``call:``
_BEFORE_JSON = re.compile(
    r"(?:Action:|✿FUNCTION✿:|<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?|<\|tool_call_begin\|>|\bcall:|\A)\s{0,4}"
    rf"(?:functions\.)?{_NAME}(?::\d{{1,4}})?(?:\s{{0,4}}(?:Action Input:|✿ARGS✿:|<｜tool▁sep｜>"
    r"|<\|tool_call_argument_begin\|>|\[ARGS\]|\s```(?:json)?)\s{0,4}|\s{0,4})\Z"
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
        calls = [ToolCall(call.name.removeprefix("default_api."), call.named)]
    if not calls:
        raise Unread(text, GRAMMAR)
    return calls


def read_all(text: str) -> list[ToolCall]:
    """Every tool call of a text in marks or in JSON, in order; empty if it has none."""
    for mark in _NOISE:
        text = text.replace(mark, "")
    try:
        tagged = list(_tagged(text))
    except ValueError:  # an argument stands twice in one: none of them counts
        return []
    if tagged:
        return tagged
    if _GEMMA in text:
        parts = _GEMMA_QUOTE.split(text)
        parts[::2] = [_BARE_KEY.sub(r'"\1":', part) for part in parts[::2]]
        text = '"'.join(parts)
    return list(_with_json(text))


def _tagged(text: str) -> Iterator[ToolCall]:
    starts = list(_TAGGED.finditer(text))[:MAX_CALLS]
    ends = [*(start.start() for start in starts[1:]), len(text)]
    for start, end in zip(starts, ends, strict=False):
        yield ToolCall(start[start.lastindex or 1], _arguments(text[start.end() : end]))


def _arguments(body: str) -> dict[str, Json]:
    arguments = _ARGUMENT.findall(body)
    return once_each(
        [((first or second or third).strip(), _value(raw)) for first, second, third, raw in arguments]
    )


def _with_json(text: str) -> Iterator[ToolCall]:
    """Objects with a name and arguments in them, or with the name before them."""
    # Each of many unclosed braces would be read to the end of the text.
    start = text.find("{") if text.count("{") - text.count("}") <= MAX_CALLS else -1
    for _ in range(MAX_CALLS):
        if start < 0:
            return
        value, end = _object_at(text, start)
        call = value.get("function", value)
        call = call if isinstance(call, dict) else value
        named = next((name for key in _NAMES if isinstance(name := call.get(key), str)), "")
        arguments = next((call[key] for key in _GIVEN if key in call), None)
        arguments = decoded(arguments, strict)
        before = _BEFORE_JSON.search(text[max(0, start - 128) : start])
        if named and isinstance(arguments, dict):
            yield ToolCall(named, arguments)
        elif before and value:
            yield ToolCall(before[1], value)
        start = text.find("{", end)


def _object_at(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The object in JSON, or in Python's writing, that starts there, and where it ends; else an empty one."""
    try:
        return DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        end = text.find("\n", start) if "\n" in text[start:] else len(text)
        value = decoded(text[start:end].rstrip(" )]>"), literal)
        return (value, end) if isinstance(value, dict) else ({}, start + 1)


def _value(raw: str) -> Json:
    """An argument's value: JSON where it is JSON, else its text."""
    text = raw.strip("\n")
    return decoded(text.strip(), strict, otherwise=text)
