import json
import time

import pytest

from swift_grpo_ext.rewards.tool_use import tool_call
from swift_grpo_ext.rewards.values.tool_call import ToolCall, read_all

GOLD = {"name": "weather", "arguments": {"city": "Rome", "days": 3}}
ROW = {"solution": GOLD}
HERMES = f"<tool_call>{json.dumps(GOLD)}</tool_call>"


@pytest.mark.parametrize(
    "text",
    [
        HERMES,
        json.dumps(GOLD),
        "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n</function>\n</tool_call>",
        "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key>"
        "<arg_value>3</arg_value></tool_call>",
        'Action: weather\nAction Input: {"city": "Rome", "days": "3"}',
        "Action: weather\nAction Input: {'city': 'Rome', 'days': 3}\nObservation: ",
        "<think>Which tool?</think>\n" + HERMES,
    ],
)
def test_grammars_are_equal(text):
    assert tool_call(text, ROW) == 1.0


def test_another_tool_or_value_is_less():
    assert tool_call(HERMES.replace("weather", "news"), ROW) == 0.0
    assert tool_call(HERMES.replace("3", "2"), ROW) == 0.5
    assert tool_call("I would look at the weather in Rome.", ROW) == 0.0


def test_surplus_calls_lower_the_score():
    assert tool_call(HERMES * 2, ROW) == 0.5
    assert tool_call(HERMES * 40, ROW) < 0.05


def test_surplus_arguments_lower_the_score():
    call = {"name": "weather", "arguments": {**GOLD["arguments"], "a": 1, "b": 2}}
    assert tool_call(json.dumps(call), ROW) == pytest.approx(2 * 2 / 6)


def test_calls_in_the_thinking_part_are_not_read():
    assert tool_call(f"<think>{HERMES}</think>No tool is needed.", ROW) == 0.0


def test_a_gold_without_a_call_is_unscored():
    assert tool_call(HERMES, {"solution": "nothing"}) is None
    assert tool_call(HERMES, {}) is None


def test_braces_that_nothing_closes_are_not_each_read_to_the_end():
    seconds = []
    for _ in range(5):
        started = time.process_time()
        assert read_all('{"a": ' * 700) == []
        seconds.append(time.process_time() - started)
    assert min(seconds) < 0.01
    assert read_all('{"cut": {"name": "f", "arguments": {"x": 1}}') == [ToolCall("f", {"x": 1})]
