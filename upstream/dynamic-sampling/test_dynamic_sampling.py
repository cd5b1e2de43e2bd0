"""Dynamic sampling looks at the last batch that it generates."""

from swift.rewards import ORM


class EqualAtFirst(ORM):
    """Equal rewards in the first batch; from the second on they differ."""

    batches = 0

    def __call__(self, completions, **kwargs):
        self.batches += 1
        return [1.0 if self.batches == 1 else float(row % 2) for row in range(len(completions))]


def test_one_try_is_one(grpo, reward):
    (step,) = grpo(reward_funcs=reward(EqualAtFirst), dynamic_sample=True, max_resample_times=1, max_steps=1)
    assert step["reward_std"] > 0
    assert step["grad_norm"] > 0


def test_no_try_is_none(grpo, reward):
    (step,) = grpo(reward_funcs=reward(EqualAtFirst), dynamic_sample=True, max_resample_times=0, max_steps=1)
    assert step["reward_std"] == 0
