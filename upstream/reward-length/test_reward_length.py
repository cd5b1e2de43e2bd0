"""A reward function must return one reward for each completion."""

import pytest
from swift.rewards import ORM, AsyncORM


class MeanOfTheBatch(ORM):
    def __call__(self, completions, **kwargs):
        return [0.5]


class AsyncMeanOfTheBatch(AsyncORM):
    async def __call__(self, completions, **kwargs):
        return [0.5]


class OnePerCompletion(ORM):
    def __call__(self, completions, **kwargs):
        return [0.5, None, 1, 0.25][: len(completions)]


@pytest.mark.parametrize("function", [MeanOfTheBatch, AsyncMeanOfTheBatch])
def test_one_reward_for_four_completions_is_an_error(grpo, reward, function):
    with pytest.raises(ValueError, match=f"{function.__name__} returned 1 rewards for 4 completions"):
        grpo(reward_funcs=reward(function), max_steps=1)


def test_one_reward_each_is_taken(grpo, reward):
    assert grpo(reward_funcs=reward(OnePerCompletion), max_steps=1)
