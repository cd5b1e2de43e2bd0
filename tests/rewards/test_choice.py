import pytest

from swift_grpo_ext.rewards.choice import choice
from swift_grpo_ext.rewards.yes_no import yes_no
from tests.rewards.linear import assert_linear

ANIMALS = ["a cat", "a dog", "no animal", "A and B"]


def chosen(answer, gold="B", options=None, **parameters):
    return choice(
        f"<think>A</think><answer>{answer}</answer>", {"solution": gold, "options": options}, **parameters
    )


@pytest.mark.parametrize(
    "answer",
    [
        "B",
        "b",
        "(B)",
        "B.",
        "B)",
        " B \n",
        "**B**",
        "`B`",
        "[B]",
        "B:",
        r"\boxed{B}",
        r"\boxed{\text{B}}",
        "$B$",
    ]
    + [
        "The answer is B",
        "The answer is (B).",
        "Answer: B",
        "**Answer:** B",
        "option B",
        "答案是B",
        "答案：B",
    ]
    + ["“B”", "「B」", "【B】", r"\boxed{\textbf{B}}", r"\(B\)", r"$\mathrm{B}$", "B - a dog", "B – a dog"]
    + ["B. a dog", "(b) a dog", "B: a dog", "Ｂ", "The correct answer is option B."],
)
def test_usual_forms_of_a_letter(answer):
    assert chosen(answer) == 1.0
    assert chosen(answer, options=ANIMALS) == 1.0


@pytest.mark.parametrize("answer", ["a dog", "A DOG.", "“a dog”"])
def test_option_text_counts_when_the_row_lists_options(answer):
    assert chosen(answer, options=ANIMALS) == 1.0
    assert chosen(answer, options=dict(zip("ABCD", ANIMALS, strict=True))) == 1.0
    assert chosen(answer, options='["A. a cat", "B. a dog"]') == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "A",
        "C",
        "E",
        "dog and cat",
        "I do not know",
        "The answer is BANANA",
        "B. A",
        "B - A",
        "B or not",
        "🐕",
    ],
)
def test_wrong_answers(answer):
    assert chosen(answer, options=ANIMALS) == 0.0


@pytest.mark.parametrize(
    "answer", ["A, B", "AB", "ABCD", "A B C D", "A. a cat B. a dog", "(A) (B)", "A and B", "B or A"]
)
def test_naming_every_option_does_not_pay(answer):
    assert chosen(answer) == chosen(answer, gold="A") == 0.0
    assert chosen("A, B, C, D", gold=["A", "B"]) < 1.0


def test_last_answer_counts():
    row = {"solution": "B"}
    assert choice("<answer>B</answer><answer>A</answer>", row) == 0.0
    assert choice("<answer>A</answer><answer>B</answer>", row) == 1.0
    assert choice("<think><answer>B</answer></think><answer>A</answer>", row) == 0.0
    assert choice("<think><answer>B</answer>", row) == 0.0


def test_letter_and_text_must_agree():
    assert chosen("B. a cat", options=ANIMALS) == 0.0


def test_article_is_no_letter():
    assert chosen("A dog is in the picture", gold="A", options=ANIMALS) == 0.0
    assert chosen("I see a cat", gold="I") == 0.0


def test_option_text_that_looks_like_letters():
    assert chosen("A and B", gold="D", options=ANIMALS) == 1.0


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("A, C", 1),
        ("AC", 1),
        ("答案是AC", 1),
        ("The answer is AC.", 1),
        ("C and A", 1),
        ("A", 2 / 3),
        ("A,B,C,D", 2 / 3),
        ("B", 0),
        ("", 0),
    ],
)
@pytest.mark.parametrize("gold", ["AC", "A, C", ["A", "C"], [0, 2]])
def test_multi_select(answer, score, gold):
    assert chosen(answer, gold=gold, options=ANIMALS) == pytest.approx(score)


@pytest.mark.parametrize("gold", ["B", "(B)", "b", "B. a dog", "a dog", 1, "<answer>B</answer>"])
def test_forms_of_the_gold(gold):
    assert chosen("B", gold=gold, options=ANIMALS) == 1.0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "no gold in column solution or answer"),
        ({"solution": None}, "no gold"),
        ({"solution": ""}, "no gold"),
        ({"solution": "F", "options": ANIMALS}, "is no option"),
        ({"solution": "some sentence"}, "is no option"),
        ({"solution": "A", "options": 7}, "neither a list nor a mapping"),
        ({"solution": "A", "options": "{"}, "nor JSON"),
    ],
)
def test_broken_rows_are_unscored_with_a_reason(row, reason):
    outcome = choice.outcome("<answer>A</answer>", row)
    assert outcome.score is None
    assert reason in outcome.reason


@pytest.mark.parametrize(
    "answer",
    [
        "the answer is b",
        "**B. a dog**\n\nIt has a leash.",
        '{"answer": "B", "reason": "not A"}',
        "The correct option is (B) a dog.",
        "I compared the ears and the tails of the two animals in the image with care.\n\n**Answer:**\n\nB",
        "<answer>The answer is option B: a dog</answer>",
        "答案是B",
    ],
)
def test_a_statement_counts(answer):
    assert choice(answer, {"solution": "B", "options": ANIMALS}) == 1.0
    assert choice(answer, {"solution": "A", "options": ANIMALS}) == 0.0


@pytest.mark.parametrize(
    "answer",
    [
        "The answer is A or B.",
        "Either A or B",
        "The answer is A. The answer is B.",
        "A, B, C and D are all possible.",
        "It might be a cat or a dog.",
        "It is not B.",
        "The answer is not B.",
        "B is incorrect.",
        "The answer is B. a cat",
        "What is it? A. a cat B. a dog C. no animal",
        "A. a cat\nB. a dog\nC. no animal\nD. A and B",
        "Options: A, B, C, D. Answer:",
    ],
)
@pytest.mark.parametrize("gold", "ABCD")
def test_hedges_echoes_and_contradictions_do_not_pay(answer, gold):
    assert choice(answer, {"solution": gold, "options": ANIMALS}) == 0.0


@pytest.mark.parametrize(
    "piece", ["A or ", "answer is ", "B is correct ", "(A) ", "no, ", "there is ", "选", "**A** "]
)
@pytest.mark.parametrize("reward", [choice, yes_no])
def test_floods_of_statements_are_linear(reward, piece):
    row = {"solution": "yes" if reward is yes_no else "A", "options": ANIMALS}
    assert_linear(lambda text: reward(text, row), piece, 32_000)
