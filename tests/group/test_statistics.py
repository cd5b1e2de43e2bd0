import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from swift.rl_core.advantage import compute_reward_metrics

from swift_grpo_ext.group.advantages import group_advantages, reward_statistics
from swift_grpo_ext.group.logps import WeightedMean, per_token_kl, with_mean_for_nonfinite

nan = math.nan


def statistics(rewards, size, scale="group", names=("a", "b")):
    rewards = torch.tensor(rewards)
    group = torch.arange(len(rewards)) // size
    result = group_advantages(rewards, torch.ones(rewards.shape[1]), group, scale=scale)
    return reward_statistics(result, rewards, names[: rewards.shape[1]], scale), result


@pytest.mark.parametrize("scale", ["group", "batch", "none", "gdpo"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_hosts_figures_when_all_are_scored(scale, size):
    rewards = torch.rand(8, 2, generator=torch.Generator().manual_seed(0))
    rewards[:4] = 0.5
    figures, _ = statistics(rewards.tolist(), size, scale)
    theirs = compute_reward_metrics(rewards.sum(1), rewards, ["a", "b"], size, scale)
    expected = {
        "reward": theirs.reward_mean,
        "reward_std": theirs.reward_std,
        "frac_reward_zero_std": theirs.frac_reward_zero_std,
        **{f"rewards/{name}/mean": value for name, value in theirs.per_func_mean.items()},
        **{f"rewards/{name}/std": value for name, value in theirs.per_func_std.items()},
    }
    if size == 1:  # no group can be compared: the host says 0 and 1, here there is nothing to say
        for name in ("reward_std", "frac_reward_zero_std"):
            if name not in figures:
                del expected[name]
    assert {name: figures[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert figures["reward_coverage"] == 1
    assert figures["unscored/a"] == figures["unscored/b"] == 0
    assert figures["dropped_groups"] == float(size == 1)


def test_what_is_missing_is_counted_and_not_averaged():
    figures, _ = statistics([[1.0], [0.0], [nan], [1.0], [nan], [nan]], 3)
    assert figures == pytest.approx(
        {
            "reward_coverage": 0.5,
            "dropped_groups": 0.5,
            "reward": 2 / 3,
            "reward_std": 0.5**0.5,
            "frac_reward_zero_std": 0.0,
            "rewards/a/mean": 2 / 3,
            "rewards/a/std": torch.tensor([1.0, 0, 1]).std().item(),
            "unscored/a": 0.5,
        }
    )


@given(st.lists(st.sampled_from([0.0, 1.0, 0.1, nan, math.inf]), min_size=4, max_size=12))
def test_never_nan(column):
    rows = [[value, 1.0] for value in column[: len(column) // 4 * 4]]
    figures, _ = statistics(rows, 4)
    assert all(map(math.isfinite, figures.values()))


def test_nothing_scored_leaves_only_the_counts():
    figures, _ = statistics([[nan], [nan]], 2)
    assert figures == {"reward_coverage": 0.0, "dropped_groups": 1.0, "unscored/a": 1.0}


def test_kl_of_equal_policies_is_zero_and_otherwise_positive():
    logps = torch.tensor([[-1.0, -2.0]])
    assert (per_token_kl(logps, logps) == 0).all()
    assert (per_token_kl(logps, logps - 1) > 0).all()
    assert per_token_kl(logps, logps + 100).isfinite().all()


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(1, 9)), min_size=1, max_size=8))
def test_a_weighted_mean_does_not_depend_on_the_cut(parts):
    tokens = [value for value, count in parts for _ in range(count)]
    mean = WeightedMean()
    for value, count in parts:
        mean.add(value * count, count)
    assert mean.value == pytest.approx(sum(tokens) / len(tokens), abs=1e-9)


def test_nan_is_replaced_by_the_mean_of_the_others():
    assert with_mean_for_nonfinite([1.0, nan, 3.0, math.inf]) == [1.0, 2.0, 3.0, 2.0]
    assert with_mean_for_nonfinite([nan]) == []
    tensors = with_mean_for_nonfinite([torch.tensor(1.0), torch.tensor(nan)])
    assert torch.stack(tensors).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_one_completion_per_prompt_has_the_figures_of_stock(scale):
    """``--num_generations_eval 1``; ``--metric_for_best_model`` may name them."""
    rewards = torch.tensor([[1.0], [0.0], [0.5]])
    result = group_advantages(rewards, torch.ones(1), torch.arange(3))
    ours = reward_statistics(result, rewards, ["one"], scale)
    stock = compute_reward_metrics(rewards[:, 0], rewards, ["one"], 1, scale)
    assert ours["reward_std"] == pytest.approx(stock.reward_std)
    assert ours["frac_reward_zero_std"] == stock.frac_reward_zero_std == 1
