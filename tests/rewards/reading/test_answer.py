import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.reading.answer import (
    MAX_ANSWER_CHARS,
    after_thinking,
    extract_answer,
    last_boxed,
    last_fenced,
    readings,
    short_answer,
)
from tests.rewards.linear import assert_linear

PIECES = [
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "\\boxed{",
    "<|begin_of_box|>",
    "**",
    "the answer is ",
    "answer:",
    "}",
    "{",
    "```",
    "json\n",
    "A",
    " ",
    "\n",
]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>42</answer>", "42"),
        ("<think>17</think><answer> 42\n</answer>\n", "42"),
        ("<think><answer>17</answer></think>42", "42"),
        ("reasoning without an opening tag </think> 42", "42"),
        ("<think>endless", None),
        ("<think>a</think><think><answer>42</answer>", None),
        ("<answer>1</answer> no, wait <answer>2</answer>", "2"),
        ("<answer>1</answer> no, wait <answer>2", "1"),
        ("<answer><answer>2</answer></answer>", "2"),
        ("<answer>42", None),
        ("42</answer>", "42</answer>"),
        ("<answer></answer>", None),
        ("", None),
        ("42", "42"),
        ("x" * (MAX_ANSWER_CHARS + 1), None),
    ],
)
def test_the_last_closed_answer_after_the_thinking_counts(text, answer):
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"so \boxed{1} and \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{1", None),
        (r"\boxed{}", ""),
        ("nothing", None),
    ],
)
def test_last_boxed_balances_braces(text, boxed):
    assert last_boxed(text) == boxed


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ('Here:\n```json\n{"a": 1}\n```\n', '{"a": 1}\n'),
        ("```\n1\n```\nthen\n```json\n2\n```", "2\n"),
        ("```[1, 2]```", "[1, 2]"),
        ("```json\n[1, 2", "```json\n[1, 2"),
        ("plain", "plain"),
    ],
)
def test_last_fenced_block(text, body):
    assert last_fenced(text) == body


@pytest.mark.parametrize(
    ("completion", "meant"),
    [
        ("<think>x</think>The sign: <|begin_of_box|>Stop 5<|end_of_box|>.", "Stop 5"),
        ("<answer><|begin_of_box|>Stop 5<|end_of_box|></answer>", "Stop 5"),
        ("◁think▷Go◁/think▷Stop 5", "Stop 5"),
        ("[THINK]Go[/THINK]Stop 5", "Stop 5"),
        ("<ANSWER>Stop 5</ANSWER>", "Stop 5"),
        ("<|channel|>analysis<|message|>Go<|end|><|channel|>final<|message|>Stop 5<|return|>", "Stop 5"),
        ("Stop 5<|im_end|>", "Stop 5"),
        ("**Stop 5**.", "Stop 5"),
        ("**Answer:** Stop 5", "Stop 5"),
        ("Some reasons.\n\nFinal answer: **Stop 5**", "Stop 5"),
        ("图中的文字是：“Stop 5”。", "Stop 5"),
        ("答案是：Ｓｔｏｐ　５", "Stop 5"),
        ("```text\nStop 5\n```", "Stop 5"),
        ("So \\boxed{\\text{Stop 5}}", "Stop 5"),
        ("$\\text{Stop 5}$", "Stop 5"),
        ("> Stop 5", "Stop 5"),
    ],
)
def test_wrapping_is_no_part_of_the_answer(completion, meant):
    assert meant in readings(completion)


@pytest.mark.parametrize(
    "completion", ["<|begin_of_box|>Stop 5", "◁think▷Stop 5", "<reasoning>Stop 5", "<think>a</think>"]
)
def test_a_cut_off_answer_is_none(completion):
    assert readings(completion) == []


def test_wrapping_of_the_gold_is_kept():
    assert readings("Stop.", "Stop.") == ["Stop."]
    assert "```\na\n```" in readings("```\na\n```", "```\na\n```")


def test_two_marked_texts_are_not_one():
    assert readings('"Stop" or "Go"') == ['"Stop" or "Go"']


@pytest.mark.parametrize(
    ("answer", "short"),
    [
        ('{"answer": "B"}', "B"),
        ('```json\n{"reason": "x", "Answer": 14}\n```', "14"),
        ('["14"]', "14"),
        ('["A", "C"]', "A, C"),
        ("{'a': 1}", "{'a': 1}"),
        ("[" * 50_000, None),
    ],
)
def test_answers_in_json(answer, short):
    assert short_answer(answer) == short


def test_short_answers_lose_their_wrapping():
    assert short_answer(r"<answer> **\boxed{\text{B}}** </answer>") == "B"
    assert short_answer("<answer>４２</answer>") == "42"


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_an_answer_never_comes_from_the_thinking_part(text):
    answer = extract_answer(text)
    assert answer is None or (answer in after_thinking(text) and answer == answer.strip() != "")


@pytest.mark.parametrize("piece", PIECES)
def test_floods_are_linear(piece):
    for read in (extract_answer, last_boxed, last_fenced, short_answer, readings):
        assert_linear(read, piece, 1_000_000)
