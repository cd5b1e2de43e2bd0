"""Marks of thinking, answers and tool calls of every chat template that ms-swift has."""

import inspect
import json
import pkgutil
import re
from importlib import import_module

import pytest
from swift.agent_template import agent_template_map
from swift.template import TEMPLATE_MAPPING, templates

from swift_grpo_ext.rewards.reading.answer import after_thinking, extract_answer
from swift_grpo_ext.rewards.reading.tool_calls import tool_calls
from swift_grpo_ext.rewards.reading.words import DIALECTS

MARK = re.compile(
    r"(?:<\|?/?|\[|◁|<\|)[a-z_:]{0,12}(?:think|thought|reason|reflect|analysis|answer|channel|output)[a-z_:]{0,14}"
    r"(?:\|?>|\]|▷)(?:thought|analysis|final)?",
    re.IGNORECASE,
)
# Marks in the source of templates that open neither thinking nor an answer.
NONE = {
    "<|think|>",  # Gemma 4: in the system prompt, it turns thinking on
    "<thinking_instructions>",  # a system prompt of Moss
    "</thinking_instructions>",
    "<|channel|>final",  # gpt-oss: closes its thinking
    "<|channel|>",
    "[reasoning_effort]",
}
CALL = {"name": "click", "arguments": {"coordinate": [12, 34], "button": "left"}}


def _marks_of_templates():
    for module in pkgutil.iter_modules(templates.__path__):
        source = inspect.getsource(import_module(f"{templates.__name__}.{module.name}"))
        yield from MARK.findall(source)


def test_every_mark_of_a_template_is_known_or_listed_as_none():
    known = {
        mark for pairs in (DIALECTS.thinking, DIALECTS.answers) for pair in pairs.items() for mark in pair
    }
    marks = {mark.casefold() for mark in _marks_of_templates()}
    assert len(marks) > 10
    assert marks <= known | NONE


@pytest.mark.parametrize("name", sorted(TEMPLATE_MAPPING))
def test_what_a_template_writes_before_an_answer_is_no_answer(name):
    meta = TEMPLATE_MAPPING[name]
    if meta.thinking_prefix.strip():
        assert after_thinking(f"{meta.thinking_prefix}So it is B") == ""
    for before in (meta.non_thinking_prefix, meta.history_thinking_prefix):
        assert extract_answer(f"{before}B") in ("B", None)
        assert "B" in after_thinking(f"{before}B")


@pytest.mark.parametrize(("opening", "closing"), DIALECTS.thinking.items())
def test_thinking_is_no_answer(opening, closing):
    assert extract_answer(f"{opening}\nIt is B\n{closing}\nC") == "C"
    assert extract_answer(f"{opening}\nIt is B") is None


@pytest.mark.parametrize("name", sorted(agent_template_map))
def test_tool_calls_of_every_agent_template_are_read(name):
    written = agent_template_map[name]()._format_tool_calls(
        [{"role": "tool_call", "content": json.dumps(CALL)}] * 2
    )
    calls = tool_calls(written)
    assert calls
    assert {call.name for call in calls} == {"click"}
    assert all(call.arguments == CALL["arguments"] for call in calls)
