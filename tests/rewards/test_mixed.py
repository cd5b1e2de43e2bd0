import pytest

from swift_grpo_ext.rewards.mixed import answer, kind_of
from swift_grpo_ext.rewards.values.text import plain


@pytest.mark.parametrize(
    ("gold", "kind"),
    [
        ("B", "choice"),
        ("(C)", "choice"),
        ("yes", "yes or no"),
        ("No.", "yes or no"),
        ("是", "yes or no"),
        ("12", "number"),
        ("1,200", "number"),
        ("5 km", "number"),
        ("-3.5 %", "number"),
        ("$12", "number"),
        (r"\frac{1}{2}", "mathematics"),
        ("x^2 + 1", "mathematics"),
        ("2\u03c0", "mathematics"),
        ("a red car", "text"),
        ("2024-03-01 to 2025", "text"),
        ("right lung", "text"),
        ("no parking", "text"),
        ("wrong way", "text"),
        ("$70,000-$140,000", "text"),
        ("t2-mri", "text"),
        ("Envelopes - plain Manila - 9.1/2 x 12/1/2", "text"),
        ("5 dogs", "text"),
        ("2x + 3", "mathematics"),
        ("Paris", "text"),
        ("北京", "text"),
    ],
)
def test_the_gold_says_its_kind(gold, kind):
    assert kind_of(gold) == kind


def test_beside_options_any_gold_is_a_choice():
    assert kind_of("a dog", has_options=True) == "choice"
    row = {"solution": "a dog", "options": ["a cat", "a dog"]}
    assert answer("The answer is B", row) == 1.0
    assert answer("A", row) == 0.0


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("B", "The answer is (B).", "C"),
        ("yes", "Yes, it is.", "No"),
        ("12", r"\boxed{12}", "It is not 12."),
        ("12", "twelve", "13"),
        ("0.5", "1/2", "0.6"),
        (r"\frac{1}{2}", r"\boxed{0.5}", r"\boxed{0.25}"),
        ("Eiffel Tower", "The Eiffel tower.", "the Louvre"),
        ("北京", "**北京**", "上海"),
        (["New York", "NYC"], "NYC", "Boston"),
    ],
)
def test_each_kind_is_compared_in_its_way(gold, right, wrong):
    assert answer(right, {"solution": gold}) == 1.0
    assert answer(f"<think>{right}</think>{wrong}", {"solution": gold}) == 0.0


def test_text_must_be_the_whole_answer():
    assert answer("Paris, London, Rome, Madrid", {"solution": "Rome"}) == 0.0
    assert answer("I do not know whether it is Rome", {"solution": "Rome"}) == 0.0


@pytest.mark.parametrize(
    ("gold", "text"), [("B", "A or B"), ("yes", "yes or no"), ("12", "11 or 12"), ("12", "between 11 and 12")]
)
def test_several_answers_are_none(gold, text):
    assert answer(text, {"solution": gold}) == 0.0


def test_a_number_has_the_tolerance_that_is_asked_for():
    assert answer("101", {"solution": "100"}) == 0.0
    assert answer("101", {"solution": "100"}, relative_tolerance=0.05) == 1.0


def test_a_gold_that_its_reward_cannot_read_is_unscored():
    assert answer("A", {"solution": "zebra", "options": ["a cat", "a dog"]}) is None
    assert answer("A", {}) is None


def test_plain_text_keeps_what_is_only_punctuation():
    assert plain("?") == "?"
    assert plain("The  red, car!") == "red car"
