import pytest

from swift_grpo_ext.rewards.yes_no import yes_no


def scored(answer, gold="no"):
    return yes_no(f"<think>yes</think><answer>{answer}</answer>", {"solution": gold})


@pytest.mark.parametrize(
    "answer", ["No", "no.", "NO!", "False", "nope", "No, there is none.", "否", "不是", "错"]
)
def test_ways_to_write_no(answer):
    assert scored(answer.rstrip("!")) == 1.0
    assert scored(answer.rstrip("!"), "yes") == 0.0


@pytest.mark.parametrize("answer", ["Yes", "yes.", "True", "yeah", "Yes: it is red.", "是", "对的"])
def test_ways_to_write_yes(answer):
    assert scored(answer, "yes") == 1.0
    assert scored(answer) == 0.0


@pytest.mark.parametrize(
    "answer", ["yes or no", "Yes, but no.", "yes/no", "No, yes.", "yes and no", "Yes, maybe"]
)
def test_hedged_yes_no(answer):
    assert scored(answer) == scored(answer, "yes") == 0.0


@pytest.mark.parametrize(
    "answer",
    [
        "The image does not provide enough information to answer the question.",
        "I cannot tell.",
        "There is no way to know.",
        "Sorry, I can't help with that.",
        "not enough information",
        "Sure, I'd be happy to help!",
        "Certainly",
        "无法判断",
    ],
)
def test_a_refusal_is_no_answer(answer):
    for gold in ("yes", "no"):
        assert yes_no(answer, {"solution": gold}) == scored(answer, gold) == 0.0


@pytest.mark.parametrize(
    "gold", [True, "yes", "Yes.", 1, "1", "true", "是", "<answer>yes</answer>", "**Yes**"]
)
def test_forms_of_the_gold(gold):
    assert scored("yes", gold) == 1.0


@pytest.mark.parametrize("gold", ["maybe", "no parking", "right", "wrong way", "", None, 2])
def test_gold_that_is_neither(gold):
    assert yes_no.outcome("yes", {"solution": gold}).score is None
