import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.counting import count, count_shaped
from swift_grpo_ext.rewards.values.count import WORDS, read


@pytest.mark.parametrize(
    ("text", "number"),
    [("3", 3), ("Twelve", 12), ("1,234", 1234), ("0", 0), ("3 cats", 3), ("three red blocks", 3), ("2个", 2)],
)
def test_ways_to_write_counts(text, number):
    assert read(text) == number


@given(st.integers(0, 10**12))
def test_whole_numbers_are_read_as_python_writes_them(number):
    assert read(str(number)) == read(f"{number:,}") == number


def test_the_words_are_those_of_zero_to_twenty():
    assert [read(word) for word in WORDS] == list(range(21))


@pytest.mark.parametrize(
    "text",
    [
        "3.5",
        "-3",
        "x3",
        "none",
        "two dozen",
        "4 or 5",
        "4 to 5",
        "4 of them or more",
        "no 4",
        "4 not",
        "",
        "5 6",
    ]
    + ["twenty-one", "4或5", "约4个", "1 234", "12,34", "1" * 16],
)
def test_no_counts(text):
    with pytest.raises(Unread, match="is no count"):
        read(text)


@given(st.integers(0, 300), st.integers(0, 300))
def test_shaped_count_is_the_formula(predicted, gold):
    answer = f"<answer>{predicted}</answer>"
    expected = 1 - min(1, abs(predicted - gold) / max(gold, 1))
    assert count_shaped(answer, {"solution": gold}) == pytest.approx(expected)
    assert count(answer, {"solution": gold}) == float(predicted == gold)


def test_a_constant_count_earns_less_than_counting():
    golds = range(1, 11)
    constant = [count_shaped("<answer>5</answer>", {"solution": gold}) for gold in golds]
    assert sum(constant) < 0.7 * len(golds)


def test_several_numbers_are_no_count():
    every = " ".join(map(str, range(100)))
    for text in (every, "41 or 42", "41-42", "42, 43"):
        assert count(f"<answer>{text}</answer>", {"solution": 42}) == 0.0
        assert count_shaped(f"<answer>{text}</answer>", {"solution": 42}) == 0.0


@pytest.mark.parametrize("gold", ["many", "3 or 4", -1, 2.5, "", None, True])
def test_gold_that_is_no_count(gold):
    assert count.outcome("5", {"solution": gold}).score is None


def test_a_zero_says_what_was_read():
    assert count.outcome("<answer>5</answer>", {"solution": 4}).read == "5"
    assert count.outcome("<answer>5</answer>", {"solution": 4}).reason == "gold: 4"
    unread = count.outcome("<answer>I think it is 4</answer>", {"solution": 4})
    assert unread.reason == "unread: 'I think it is 4' is no count (a whole number, or zero to twenty)"
    assert unread.unread
    assert unread.read is None
