from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.format import GRAMMARS, Grammar, format
from tests.rewards.linear import assert_linear

GOOD = {
    "think_answer": [
        "<think>a</think><answer>b</answer>",
        "  <think>\na\n</think>\n\n<answer>\nb\n</answer>\n",
    ],
    "think": ["<think>a</think>b", "<think>a</think>\n\nb <b> c\n"],
    "answer": ["<answer>b</answer>\n"],
    "opened_think_answer": ["a</think><answer>b</answer>\n"],
    "opened_think": ["a\n</think>\n\nb"],
    "think_boxed": [
        r"<think>a</think>\boxed{b}",
        r"<think>a</think> So it is \boxed{\frac{1}{2}}, done." + "\n",
    ],
    "think_glm_box": ["<think>a</think>So <|begin_of_box|>b<|end_of_box|>."],
}


def test_the_type_lists_every_grammar():
    assert set(get_args(Grammar)) == set(GRAMMARS) == set(GOOD)


@pytest.mark.parametrize("grammar", GOOD)
def test_good_completions(grammar):
    for text in GOOD[grammar]:
        assert format(text, {}, grammar=grammar) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        "<answer>b</answer>",
        "<think>a</think>",
        "<think>a</think>b",
        "<think>a<answer>b</answer></think>",
    ]
    + [
        "x<think>a</think><answer>b</answer>",
        "<think>a</think>x<answer>b</answer>",
        "<think>a</think><answer>b</answer>x",
    ]
    + [
        "<answer>b</answer><think>a</think>",
        "<think>a</think><answer>b",
        "<think>a<answer>b</answer>",
        "<THINK>a</THINK><answer>b</answer>",
    ],
)
def test_bad_completions(text):
    assert format(text, {}) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "<think></think><answer></answer>",
        "<think> \n</think><answer>b</answer>",
        "<think>a</think><answer> </answer>",
    ],
)
def test_empty_blocks_score_nothing(text):
    assert format(text, {}) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>b</answer><answer>c</answer>",
        "<think>a</think><think>a</think><answer>b</answer>",
    ]
    + [
        "<think>a<think>a</think></think><answer>b</answer>",
        "<think>a</think><answer><answer>b</answer></answer>",
    ]
    + ["<think>say <answer>no</answer></think><answer>b</answer>"],
)
def test_repeated_or_nested_blocks_score_nothing(text):
    assert format(text, {}) == 0.0


@pytest.mark.parametrize(
    "flood", ["<answer>", "<think>", "</think>", "<think></think><answer>", "\\boxed{", "{"]
)
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_a_flood_of_tags_is_linear(flood, grammar):
    assert_linear(lambda text: format(text, {}, grammar=grammar), flood, 200_000)
    score = format(flood * (200_000 // len(flood)), {}, grammar=grammar)
    assert score == 0.0 or (flood, grammar) in {("{", "")}


@given(st.text(alphabet="ab{} \n", min_size=1), st.text(alphabet="ab{} \n", min_size=1))
def test_blocks_must_hold_something(thought, answer):
    filled = bool(thought.strip() and answer.strip())
    assert format(f"<think>{thought}</think>\n<answer>{answer}</answer>\n", {}) == filled


@pytest.mark.parametrize("answer", ["a cat", "12 or 13", "{a: 1", "…?"])
def test_what_the_blocks_hold_is_not_read(answer):
    assert format(f"<think>x</think><answer>{answer}</answer>", {}) == 1.0
