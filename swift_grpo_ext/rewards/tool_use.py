"""Calls of tools: the right tools with the right arguments."""

import json

from swift_grpo_ext.rewards.contract import Columns, Outcome, Unread, as_gold, gold_value, reward
from swift_grpo_ext.rewards.gold.columns import as_text
from swift_grpo_ext.rewards.gold.geometry import matched_mean
from swift_grpo_ext.rewards.json_schema import field_f1
from swift_grpo_ext.rewards.place import answer_of
from swift_grpo_ext.rewards.values.tool_call import ToolCall, read

GOLD = ("solution", "tool_calls", "answer")
MAX_CALLS = 32  # of an answer; with more it does not count


def _gold_calls(columns: Columns) -> list[ToolCall]:
    return as_gold(read, as_text(gold_value(columns, GOLD)))


@reward(
    gold=GOLD,
    gold_text=lambda row, **_: json.dumps([call._asdict() for call in _gold_calls(row)], ensure_ascii=False),
)
def tool_call(completion: str, columns: Columns) -> Outcome:
    """The right tool calls, 0..1: the tool's name must be the gold's, then the F1 of its arguments counts.

    Calls are read as JSON with ``name`` and ``arguments``, as most of ms-swift's agent templates have them,
    and in the forms of ``qwen3_5`` (``<function=..>``), ``glm4_5`` (``<arg_key>``), ``kimi_k25`` and
    ``react_en``. Predicted and gold calls are paired one to one for the greatest total, which is divided by
    the number of predicted or gold calls, whichever is greater.

    Gold: ``solution`` (or ``tool_calls``, ``answer``): ``{"name": ..., "arguments": {...}}``, a list of such
        calls, or text that holds them in any of these grammars.
    Raises:
        Unscorable: No gold, or one without a call.
        Unread: The answer holds no call, or more than 32: 0.
    Rises with: Right names, right values of arguments.
    Gaming:
        - Many calls, so that one is right: each one beyond a pair lowers the mean
          (test_surplus_calls_lower_the_score); more than 32 count as no answer.
        - Many arguments: each surplus one lowers the F1 (test_surplus_arguments_lower_the_score).
        - A call in the thinking part: not read (test_calls_in_the_thinking_part_are_not_read).
    Source: Name and parameter matching of ToolRL (arXiv 2504.13958), here as a mean over matched calls.
    Example:
        >>> gold = {"name": "weather", "arguments": {"city": "Rome", "days": 3}}
        >>> call = '<tool_call>{"name": "weather", "arguments": {"city": "Rome", "days": 2}}</tool_call>'
        >>> get_reward("ext_tool_call")(call, {"solution": gold})
        0.5
    """
    gold = _gold_calls(columns)
    predicted = read(answer_of(completion, "long"))
    if len(predicted) > MAX_CALLS:
        raise Unread(f"{len(predicted)} calls, at most {MAX_CALLS} are read")

    def gain(call: ToolCall, wanted: ToolCall) -> float:
        # Grammars without JSON write everything as text.
        same = call.name == wanted.name
        return field_f1(call.arguments, wanted.arguments, typed=False) if same else 0.0

    return Outcome.of(matched_mean(predicted, gold, gain), _shown(predicted), _shown(gold))


def _shown(calls: list[ToolCall]) -> str:
    return json.dumps(calls, ensure_ascii=False)
