import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.counting import count, count_shaped
from swift_grpo_ext.rewards.reading.counts import counts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3", [3]),
        ("There are three dogs.", [3]),
        ("Twelve", [12]),
        ("none", [0]),
        ("3.5", []),
        ("-3", []),
        ("1,234", [1234]),
    ]
    + [
        ("三只猫", [3]),
        ("十二", [12]),
        ("二十三个", [23]),
        ("两", [2]),
        ("3 cats, 4 dogs", [3, 4]),
        ("5.", [5]),
        ("x3", []),
        ("３", [3]),
    ],
)
def test_ways_to_write_counts(text, found):
    assert counts(text) == found


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


def test_a_list_of_numbers_is_its_last():
    every = " ".join(map(str, range(100)))
    assert count(f"<answer>{every}</answer>", {"solution": 42}) == 0.0
    assert count_shaped(f"<answer>{every}</answer>", {"solution": 42}) == 0.0
    assert count(f"<answer>{every}</answer>", {"solution": 99}) == 1.0


@pytest.mark.parametrize("gold", ["many", "3 or 4", -1, 2.5, "", None])
def test_gold_that_is_no_count(gold):
    assert count.outcome("5", {"solution": gold}).score is None


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("There are 5 cats in total: 2 black and 3 white.", 5),
        ("2 black and 3 white cats, for a total of 5.", 5),
        ("Total: 5 (2 black, 3 white)", 5),
        ("一共有5只猫，其中3只是白的。", 5),
        ("There are 5 cats. Two of them are black.", 5),
        ("I can see **five** cats, 2 of them black", 5),
        ("3 + 2 = 5", 5),
        ("Two birds, one of them flying.", 2),
        ("No one is there.", 0),
        ("图中没有人。", 0),
        ("a dozen eggs", 12),
        ("一百二十", 120),
        ("one hundred and five", 105),
        ("图中只有一只鸟。", 1),
        ("a single bird", 1),
        ("4 or 5", None),
        ("between 4 to 5", None),
        ("4-5", None),
        ("5.5", None),
    ],
)
def test_a_stated_count(answer, gold):
    for other in (0, 1, 2, 3, 4, 5, 12, 105, 120):
        assert count(answer, {"solution": other}) == float(other == gold)


@pytest.mark.parametrize(
    ("answer", "dogs"),
    [
        ("5 dogs and 3 cats", 5),
        ("3 cats and 5 dogs", 5),
        ("No dogs, only 2 cats.", 0),
        ("There is no dog in the first picture and 2 dogs in the second.", 2),
        ("There are 3 brown dogs and 2 white dogs. In total 5.", 5),
        ("图里有3只狗,两只白的,一只黑的。", 3),
        ('{"dogs": 4, "cats": 7}', 4),
    ],
)
def test_the_question_says_which_number_counts(answer, dogs):
    asked = {"messages": [{"role": "user", "content": "<image>How many dogs are there?"}]}
    assert count(answer, {"solution": dogs, **asked}) == 1
    assert count(answer, {"solution": dogs + 3, **asked}) == 0


@pytest.mark.parametrize(
    ("question", "answer", "gold"),
    [
        ("How many people are standing?", "Of the six people, two are sitting and four are standing.", 4),
        ("How many slices are left?", "It was cut into 8 slices; 3 are gone, which leaves 5 slices.", 5),
        ("What is the total?", "10 blue chairs and 5 red ones, which adds up to 15.", 15),
    ],
)
def test_a_part_a_rest_and_a_sum(question, answer, gold):
    for other in (2, 3, 4, 5, 6, 8, 10, 15):
        assert count(answer, {"solution": other, "question": question}) == float(other == gold)


def test_the_end_of_a_calculation_counts():
    asked = {"question": "How many eggs are in the carton?"}
    answer = "The carton has 2 rows of 6 eggs, so 2 × 6 = 12 eggs."
    assert [count(answer, {"solution": gold, **asked}) for gold in (2, 6, 12)] == [0, 0, 1]


@pytest.mark.parametrize("answer", ["surely 7", "7. Wait, no, 7.", "If we add them, the answer is 7."])
def test_words_around_a_count_leave_it_as_it_is(answer):
    assert count(answer, {"solution": 7}) == 1
