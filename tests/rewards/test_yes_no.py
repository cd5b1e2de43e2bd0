import pytest

from swift_grpo_ext.rewards.yes_no import yes_no


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


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("There is no dog. So the answer is no.", "no"),
        ("The statement is false", "no"),
        ("The claim is not correct.", "no"),
        ("That is correct.", "yes"),
        ("I see a leash, therefore yes.", "yes"),
        ("There are two dogs.", "yes"),
        ("There aren't any dogs.", "no"),
        ("The bus isn't red.", "no"),
        ("The picture is not without a dog.", "yes"),
        ("The plate isn't entirely free of dogs.", "yes"),
        ("图中不是没有狗。", "yes"),
        ("不是的，那是猫。", "no"),
        ("没错", "yes"),
        ("可以。", "yes"),
        ("图中不存在狗。", "no"),
        ("图中有一只狗。", "yes"),
        ("该说法是错误的。", "no"),
        ("いいえ、違います。", "no"),
        ("답은 네입니다", "maybe"),
        ("No. It is red, yes, but not blue.", "no"),
        ("At first yes, but wait: the final answer is no.", "no"),
    ],
)
def test_stated_polarity(answer, gold):
    assert yes_no(answer, {"solution": "yes"}) == float(gold == "yes")
    assert yes_no(answer, {"solution": "no"}) == float(gold == "no")


@pytest.mark.parametrize(
    "answer",
    [
        "Yes. The answer is no.",
        "I cannot tell whether there is a dog.",
        "The answer is yes or no.",
        "There is a dog. There is no dog.",
        "It might not be a dog.",
    ],
)
@pytest.mark.parametrize("gold", ["yes", "no"])
def test_contradictions_are_no_answer(answer, gold):
    assert yes_no(answer, {"solution": gold}) == 0.0


@pytest.mark.parametrize(
    ("question", "answer", "gold"),
    [
        ("Are they equal?", "Both have sides 3, 4 and 5. Therefore they are equal.", "yes"),
        ("Are they equal?", "One has a side of 6. So they are not equal.", "no"),
        (
            "Is it asleep?",
            "It is asleep: its eyes are closed, and it is curled up on the rug of the room.",
            "yes",
        ),
        ("Is the cup full?", "The statement that the cup is full is incorrect.", "no"),
        ("Is the cup full?", "The claim that the cup is full is correct.", "yes"),
        ("Is there a dog?", "The claim that there is no dog is false.", "yes"),
        ("Does it show an increase?", "It shows a decrease rather than an increase.", "no"),
        ("Is it red rather than blue?", "It is red rather than blue.", "yes"),
        ("Is it red?", "It is red rather than blue.", "yes"),
    ],
)
def test_a_conclusion_a_claim_and_a_contrast(question, answer, gold):
    for other in ("yes", "no"):
        assert yes_no(answer, {"solution": other, "question": question}) == float(other == gold)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Is it red?", "It is sunny."),
        ("Is the car red?", "The car is crimson."),
        ("Is the car red?", "It is blue."),
        ("Is there a dog?", "There is a cat."),
        ("Is there a dog?", "I see a poodle."),
    ],
)
def test_a_statement_of_something_else_is_neither(question, answer):
    for gold in ("yes", "no"):
        assert yes_no(answer, {"solution": gold, "question": question}) == 0
