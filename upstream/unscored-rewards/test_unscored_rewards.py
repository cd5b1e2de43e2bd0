"""Rewards that are None or not finite take no part in baselines, and have no advantage."""

import math

import pytest
import torch
from swift.rewards import ORM
from swift.rl_core import advantage
from swift.rl_core.grpo_algorithm import compute_std_for_dynamic_sampling

from swift_grpo_ext import testing

NAN = math.nan
ESTIMATORS = ("grpo", "rloo", "reinforce_plus_plus")
SCALES = ("group", "batch", "none", "gdpo")


def advantages(*columns, k=4, estimator="grpo", scale="group"):
    rewards = torch.tensor(columns).T
    return advantage.compute_advantages(rewards, torch.ones(len(columns)), k, estimator, scale)[0].tolist()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("missing", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("value", [1.0, -1.0])
def test_one_unscored_among_equals_moves_nobody(value, missing, scale, estimator):
    assert advantages([value, value, value, missing], estimator=estimator, scale=scale) == [0, 0, 0, 0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("scale", ["group", "batch", "none", "gdpo"])
def test_the_scored_have_the_advantages_of_a_group_without_the_others(estimator, scale):
    four = advantages([0.0, 1.0, NAN, NAN], estimator=estimator, scale=scale)
    assert four[2:] == [0, 0]
    assert four[:2] == pytest.approx(advantages([0.0, 1.0], k=2, estimator=estimator, scale=scale))


def test_a_function_that_does_not_apply_to_a_group_is_passed_over():
    of_two_tasks = advantages([0.0, 1.0, NAN, NAN], [NAN, NAN, 1.0, 0.0], k=2)
    assert of_two_tasks == pytest.approx(advantages([0.0, 1.0, 1.0, 0.0], k=2))


def test_a_function_that_left_out_a_member_leaves_it_out():
    assert advantages([1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, NAN]) == [0, 0, 0, 0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_request_aware_mode_agrees(estimator, scale):
    column = [0.0, 1.0, NAN, 0.25, NAN, NAN, 2.0, 1.0]
    names = [str(i) for i in range(8)]
    dynamic = advantage.compute_advantages_dynamic(
        torch.tensor([column]).T, torch.ones(1), ["a"] * 4 + ["b"] * 4, names, estimator, scale
    )[0]
    assert dynamic.tolist() == pytest.approx(advantages(column, estimator=estimator, scale=scale), rel=1e-5)


def test_dynamic_sampling_sees_no_spread_in_a_missing_score():
    std = compute_std_for_dynamic_sampling(torch.tensor([[1.0], [1.0], [1.0], [NAN]]), torch.ones(1), 4)
    assert std.tolist() == [0, 0, 0, 0]


def test_no_reward_function_is_pure_distillation():
    assert advantage.compute_advantages(torch.zeros(4, 0), torch.zeros(0), 4)[0].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_with_every_score_there_nothing_changes(estimator, scale):
    """Figures of the release, ms-swift 4.6.0."""
    centred = torch.tensor([-0.625, 0.375, 0.125, 0.125])
    expected = centred * (4 / 3 if estimator == "rloo" else 1.0)
    if scale != "none":
        expected = expected / (torch.tensor([0.0, 1.0, 0.75, 0.75]).std() + 1e-4)
    found = advantages([0.0, 1.0, 0.75, 0.75], estimator=estimator, scale=scale)
    assert found == pytest.approx(expected.tolist(), rel=1e-5)


class OneUnscored(ORM):
    def __call__(self, completions, **kwargs):
        return [1.0, 1.0, 1.0, None][: len(completions)]


class OneInfinite(ORM):
    def __call__(self, completions, **kwargs):
        return [0.0, 1.0, 0.5, math.inf][: len(completions)]


def test_grpo_with_a_reward_that_leaves_one_out(grpo, reward):
    grpo(reward_funcs=reward(OneUnscored), max_steps=1)
    rows = testing.read_completions(grpo.output)
    assert [row["advantages"] for row in rows] == [0, 0, 0, 0]


def test_grpo_with_an_infinite_reward_still_learns(grpo, reward):
    steps = grpo(reward_funcs=reward(OneInfinite), max_steps=1)
    assert steps[0]["grad_norm"] > 0
