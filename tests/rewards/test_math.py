import pytest
from math_verify import parse, verify

from swift_grpo_ext.rewards.math import math

CASES = [
    (r"\frac{1}{2}", "$0.5$", 1),
    (r"$\frac{1}{2}$", r"\boxed{\dfrac{2}{4}}", 1),
    ("$x^2+2x+1$", "$(x+1)^2$", 1),
    (r"$\sqrt{8}$", r"$2\sqrt{2}$", 1),
    ("42", "The answer is 42.", 1),
    ("42", "The answer is 43.", 0),
    (r"$\{1,2\}$", r"$\{2,1\}$", 1),
    ("$[0,1)$", "$[0,1]$", 0),
    ("$(1,2)$", "$(1,2)$", 1),
    ("$10\\%$", "$0.1$", 1),
    ("$1{,}234$", "$1234$", 1),
    ("$x=5$", "$5$", 1),
    (r"$\pi$", "$3.14$", 0),
    (r"$30^\circ$", "$30$", 1),
]


def scored(answer, gold):
    return math(f"<think>\\boxed{{42}}</think><answer>{answer}</answer>", {"solution": gold})


@pytest.mark.parametrize(("gold", "answer", "score"), CASES)
def test_equality(gold, answer, score):
    assert scored(answer, gold) == score


@pytest.mark.parametrize(("gold", "answer", "score"), [case for case in CASES if "$" in case[0]])
def test_equality_is_math_verifys(gold, answer, score):
    assert scored(answer, gold) == float(verify(parse(gold), parse(answer)))


def test_the_last_box_counts():
    assert scored(r"\boxed{1} and \boxed{2}", "2") == 1.0
    assert scored(r"\boxed{2} and \boxed{1}", "2") == 0.0
    assert scored(r"2, or perhaps \boxed{1}", "2") == 0.0


@pytest.mark.parametrize(
    "gold", ["", "some words", None, "{}", "?", "-", "...", "N/A", "你好", "\x00", "=", "()"]
)
def test_gold_that_cannot_be_read(gold):
    assert math.outcome("<answer>1</answer>", {"solution": gold}).score is None


@pytest.mark.parametrize("answer", ["", "words", "\\frac{1}{", "$$$", "\\boxed{}", "x" * 10_000, "你好", "∞"])
def test_answers_that_cannot_be_read_are_wrong(answer):
    assert scored(answer, "42") == 0.0


def test_it_works_off_the_main_thread():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda answer: scored(answer, "42"), ["42", "41"])) == [1.0, 0.0]
