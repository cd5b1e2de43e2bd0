import pytest
from math_verify import parse, verify

from swift_grpo_ext.rewards.math_equality import math
from swift_grpo_ext.rewards.values.mathematics import latex
from tests.rewards.linear import assert_linear

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
    assert scored("\\boxed{1}, no:\n\\boxed{2}", "2") == 0.0
    assert math("\\boxed{1} first, then:\n\\boxed{2}", {"solution": "2"}) == 1.0
    assert scored(r"\boxed{1} and \boxed{2}", "2") == scored(r"\boxed{2} and \boxed{1}", "2") == 0.0
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


BARE = [
    r"9 \pi", r"9 \sqrt{2}", "2^{10}", "3x+2", r"\frac{20}{3}", "y = 2x - 1", r"x^2 + y^2 = 25", "(2, 3]",
    r"[0, 1) \cup (2, 3)", r"\{1, 2, 5\}", "(3, -4)", "x = 2 or x = -3", r"\boxed{5}, \boxed{7}", r"30^\circ",
    r"12\text{ cm}^2", "12 cm^2", "1,000", "50%", r"-\frac{1}{2}", r"\sqrt{3} - 1", "a^2 - b^2", r"x \le 3",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\pm 2", "9√2", "3/4", "x > 3", r"\log_2 5", r"10^{-3}", "2a + 3b",
    "The answer is 42", "So it is #### 17", r"\infty", r"1 \frac{1}{2}", "x=2,y=3",
]  # fmt: skip


@pytest.mark.parametrize("gold", BARE)
def test_a_gold_is_met_by_its_own_box_and_by_no_number_in_it(gold):
    inner = gold.rpartition("is ")[2].rpartition("#### ")[2].replace("Thus we get ", "").strip(".")
    assert scored(inner if "boxed" in inner else rf"so \boxed{{{inner}}}", gold) == 1.0
    assert scored(r"\boxed{123457}", gold) == 0.0


@pytest.mark.parametrize(
    ("gold", "answer", "score"),
    [
        (r"9 \pi", r"\boxed{9}", 0),
        (r"9 \sqrt{2}", r"\boxed{2}", 0),
        (r"\boxed{5}, \boxed{7}", r"$\boxed{5}$ and $\boxed{7}$", 1),
        (r"\boxed{5}, \boxed{7}", r"\boxed{7}", 0),
        (r"5, 7", r"The primes are $\boxed{5}$, $\boxed{7}$.", 1),
        (r"\{5, 7\}", r"\boxed{7, 5}", 1),
        ("x = 2 or x = -3", r"\boxed{x = 2}", 0),
        ("(2, 3]", r"\boxed{[2, 3)}", 0),
        ("42", "It could be 41, or 42.", 0),
        ("42", "The answer is 41 or 42.", 0),
        (r"2\sqrt{3}", "2sqrt(3)", 1),
        ("1024", r"$2^{10} = 1024$", 1),
        ("$x=3$", r"\boxed{3}", 1),
        ("Janet has 3 eggs. She sells 4.\n#### 18", "18", 1),
    ],
)
def test_what_an_answer_states(gold, answer, score):
    assert scored(answer, gold) == score


def test_a_gold_in_prose_with_several_numbers_is_not_guessed():
    assert math.outcome("1", {"solution": "3 apples and 4 pears"}).reason.startswith("gold '3 apples")


@pytest.mark.parametrize("answer", [r"\boxed{11 = 12}", r"\boxed{7 + 5 = 13}", r"\boxed{12 = 13}"])
def test_a_wrong_equation_is_wrong(answer):
    assert scored(answer, "12") == 0
    assert scored(r"\boxed{7 + 5 = 12}", "12") == 1


@pytest.mark.parametrize("answer", ["The answer is not 12.", r"\boxed{\neq 12}", "It is not 12."])
def test_a_denial_is_not_the_value(answer):
    assert scored(answer, "12") == 0


def test_a_flood_of_spaces_is_linear():
    assert_linear(lambda text: latex(f"1{text}x"), " ", 16_000)
