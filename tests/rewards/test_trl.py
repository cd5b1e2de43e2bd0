"""Rewards against TRL's own reward functions, on generated cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trl.rewards import accuracy_reward, think_format_reward

from swift_grpo_ext.rewards.format import format
from swift_grpo_ext.rewards.math_equality import math
from tests.rewards.expressions import expressions


def trl_says(answer, gold):
    return accuracy_reward([[{"role": "assistant", "content": answer}]], [gold])[0]


@given(expressions(), expressions())
def test_math_is_trls_accuracy_reward(gold, other):
    for answer in (gold, other):
        boxed = rf"It is $\boxed{{{answer}}}$."
        assert math(f"<answer>{boxed}</answer>", {"solution": f"${gold}$"}) == trl_says(boxed, f"${gold}$")


@pytest.mark.parametrize("gold", ["no expression", "?", "the red one"])
def test_where_trl_skips_a_row_so_does_math(gold):
    assert trl_says("$1$", gold) is None
    assert math("$1$", {"solution": gold}) is None


marks = st.lists(
    st.sampled_from(["<think>", "</think>", "a", " ", "\n", "b c", "<answer>", "字"]), max_size=8
)


@given(marks.map("".join), marks.map("".join), st.booleans())
def test_format_is_trls_think_format_but_stricter(inner, outer, wrapped):
    """TRL takes an empty thinking part, an empty answer, and further closing tags; we do not."""
    text = (f"<think>{inner}</think>{outer}" if wrapped else inner + outer).strip()
    theirs = think_format_reward([[{"role": "assistant", "content": text}]])[0]
    ours = format(text, {}, grammar="think")
    assert ours <= theirs
    thinking, _, answer = text.removeprefix("<think>").partition("</think>")
    if theirs and thinking.strip() and answer.strip() and text.count("</think>") == 1:
        assert ours == 1.0
