"""Text in scripts without spaces can repeat as well."""

from types import SimpleNamespace

import pytest
from swift.rewards import orms


@pytest.fixture
def penalty():
    arguments = SimpleNamespace(repetition_n_grams=3, repetition_max_penalty=-1.0)
    return lambda text: orms["repetition"](arguments)([text])[0]


@pytest.mark.parametrize(
    "text",
    [
        "我不知道" * 20,
        "答えは七です。" * 20,
        "คำตอบ" * 20,
        "the answer 我不知道我不知道我不知道我不知道我不知道",
    ],
    ids=["Chinese", "Japanese", "Thai", "mixed"],
)
def test_repetition_costs(penalty, text):
    assert penalty(text) < -0.5


@pytest.mark.parametrize("text", ["图中有一只猫坐在窗边看雨", "", "ab", "七"])
def test_text_that_does_not_repeat_costs_nothing(penalty, text):
    assert penalty(text) == 0


def test_text_with_spaces_is_scored_as_before(penalty):
    assert penalty("a b c a b c a b c") == pytest.approx(-(1 - 3 / 7))
    assert penalty("один два три один два три") == pytest.approx(-(1 - 3 / 4))
