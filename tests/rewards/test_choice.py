import pytest

from swift_grpo_ext.rewards.choice import choice, yes_no

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
        "选B",
    ]
    + ["“B”", "「B」", "【B】", r"\boxed{\textbf{B}}", r"\(B\)", r"$\mathrm{B}$", "B - a dog", "B – a dog"]
    + ["B. a dog", "(b) a dog", "B: a dog", "Ｂ", "The correct answer is option B."],
)
def test_usual_forms_of_a_letter(answer):
    assert chosen(answer) == 1.0
    assert chosen(answer, options=ANIMALS) == 1.0


@pytest.mark.parametrize("answer", ["a dog", "A DOG.", "“a dog”".strip("“”"), "a dog!"])
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
    assert chosen(answer) == 0.0
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
    assert chosen(answer, gold=gold, options=ANIMALS, multiple="exact") == float(score == 1)


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
        ({"solution": "A", "multiple": "half"}, "column multiple"),
    ],
)
def test_broken_rows_are_unscored_with_a_reason(row, reason):
    outcome = choice.outcome("<answer>A</answer>", row)
    assert outcome.score is None
    assert reason in outcome.reason


@pytest.mark.parametrize(
    "answer",
    [
        "yes",
        "Yes.",
        "YES, there is a dog",
        "yes - no dog, but a cat",
        "True",
        "是的，有一只狗",
        "はい",
        "نعم",
        "correct",
        "“Yes”",
        "「是」",
    ],
)
def test_yes(answer):
    assert yes_no(f"<answer>{answer}</answer>", {"solution": "yes"}) == 1.0
    assert yes_no(f"<answer>{answer}</answer>", {"solution": False}) == 0.0


@pytest.mark.parametrize("answer", ["no", "No, there is not", "false", "没有", "いいえ", "нет"])
def test_no(answer):
    assert yes_no(f"<answer>{answer}</answer>", {"solution": 0}) == 1.0


@pytest.mark.parametrize(
    "answer",
    ["yes or no", "yes (no)", "yes/no", "Yes, no", "no and yes", "yesterday", "nothing", "maybe", ""],
)
@pytest.mark.parametrize("gold", ["yes", "no"])
def test_hedged_yes_no(answer, gold):
    assert yes_no(f"<answer>{answer}</answer>", {"solution": gold}) == 0.0


def test_gold_that_is_no_polarity():
    assert yes_no.outcome("yes", {"solution": "blue"}).reason == "gold 'blue' is neither yes nor no"
