"""Beyond the maximum length the reward stays what it is there."""

from types import SimpleNamespace

import pytest
from swift.rewards import orms

ARGUMENTS = SimpleNamespace(
    cosine_min_len_value_wrong=-0.5,
    cosine_max_len_value_wrong=0.0,
    cosine_min_len_value_correct=1.0,
    cosine_max_len_value_correct=0.5,
    cosine_max_len=100,
)


def reward(length, correct):
    function = orms["cosine"](
        ARGUMENTS, accuracy_orm=lambda completions, solution, **kwargs: [float(correct)]
    )
    return function([""], [""], response_token_ids=[[0] * length])[0]


@pytest.mark.parametrize("correct", [True, False])
@pytest.mark.parametrize("length", [101, 150, 200, 1000])
def test_a_longer_completion_has_the_reward_of_the_longest(length, correct):
    assert reward(length, correct) == pytest.approx(reward(100, correct))


def test_up_to_the_maximum_nothing_changes():
    found = [reward(length, True) for length in (0, 50, 100)]
    assert found == pytest.approx([1.0, 0.75, 0.5])
