"""Advantages under Megatron, where a completion without a score counts as one with score 0."""

from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import patch


def probe() -> bool:
    """True if a completion that was not scored has an advantage."""
    import torch
    from swift.rl_core.advantage import compute_advantages

    advantages, _ = compute_advantages(torch.tensor([[1.0], [torch.nan]]), torch.ones(1), 2)
    return bool(advantages[1] != 0)


@patch(
    "unscored",
    "swift.rl_core.advantage:compute_advantages",
    fingerprint="rewards_per_func, reward_weights, num_generations, advantage_estimator=, scale_rewards=, "
    "kl_in_reward=, beta=, kl_values=",
    probe=probe,
    remove_when="ms-swift leaves completions without a score out of their group",
)
def fix(
    compute_advantages: Callable[..., object],
    rewards_per_func: Any,
    reward_weights: Any,
    num_generations: int,
    advantage_estimator: str = "grpo",
    scale_rewards: str = "group",
    kl_in_reward: bool = False,
    beta: float = 0.0,
    kl_values: Any = None,
) -> object:
    """Compare scored completions with each other; the others get advantage 0.

    Their reward, used only in the log, is the mean of the scored completions of their group.
    """
    if bool(rewards_per_func[:, reward_weights != 0].isfinite().all()):
        chosen = (advantage_estimator, scale_rewards, kl_in_reward, beta, kl_values)
        return compute_advantages(rewards_per_func, reward_weights, num_generations, *chosen)
    import torch

    from swift_grpo_ext.group.advantages import group_advantages

    compared = group_advantages(
        rewards_per_func,
        reward_weights,
        torch.arange(len(rewards_per_func)) // num_generations,
        estimator=advantage_estimator,  # type: ignore[arg-type]
        scale=scale_rewards,  # type: ignore[arg-type]
        penalty=beta * kl_values if kl_in_reward and kl_values is not None else None,
    )
    groups = compared.rewards.to(rewards_per_func.device).view(-1, num_generations)
    means = groups.nanmean(dim=1, keepdim=True).nan_to_num()
    return compared.advantages, torch.where(groups.isnan(), means, groups).view(-1)
