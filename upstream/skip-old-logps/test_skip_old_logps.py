"""On-policy, the pass for the old log-probs is left out, and nothing changes by it."""

import pytest
from swift.rewards import ORM
from swift.rlhf_trainers import GRPOTrainer

FIGURES = ("loss", "grad_norm", "reward", "clip_ratio/region_mean")
STEPS = 2


class EvenCharacters(ORM):
    """Varies even over the gibberish of a random model."""

    def __call__(self, completions, **kwargs):
        return [sum(ord(char) % 2 for char in text) / max(len(text), 1) for text in completions]


@pytest.fixture
def passes(grpo, reward, monkeypatch):
    """Run GRPO; returns the figures and the number of forward passes per micro-batch."""
    forward = GRPOTrainer._get_logps_via_local_forward
    count = []

    def counted(*args, **kwargs):
        count.append(1)
        return forward(*args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "_get_logps_via_local_forward", counted)

    def run(**overrides):
        count.clear()
        steps = grpo(reward_funcs=reward(EvenCharacters), max_steps=STEPS, **overrides)
        return [[step[name] for name in FIGURES if name in step] for step in steps], len(count) / STEPS

    return run


def test_on_policy_there_is_one_pass(passes):
    assert passes()[1] == 1, "passes per micro-batch: policy"


def test_with_a_reference_there_are_two(passes):
    assert passes(beta=0.04)[1] == 2, "passes per micro-batch: reference, policy"


def test_figures_are_those_of_a_run_with_the_pass(passes, monkeypatch):
    without, _ = passes()
    monkeypatch.setattr(GRPOTrainer, "_needs_old_logps", lambda self: True, raising=False)
    figures, count = passes()
    assert count == 2
    assert figures == [pytest.approx(row, abs=1e-6) for row in without]
    assert all(row[1] > 0 for row in figures), "there is something to compare"


@pytest.mark.parametrize(
    "wanted",
    [{"num_iterations": 2}, {"beta": 0.04, "kl_in_reward": True}],
    ids=["several updates per generation", "KL in the reward"],
)
def test_where_old_logps_are_read_they_are_computed(passes, wanted):
    figures, count = passes(**wanted)
    assert all(value == value for row in figures for value in row)
    # num_iterations 2: one generation batch, two updates; KL in the reward: old, reference, policy
    assert count == (1.5 if "num_iterations" in wanted else 3)
