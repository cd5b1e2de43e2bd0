"""Figures about rewards and tokens that go into the log: never NaN, absent where nothing was observed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from swift_grpo_ext.group.advantages import GroupAdvantages, Scale


def reward_statistics(
    result: GroupAdvantages, rewards_per_func: Tensor, names: Sequence[str], scale: Scale
) -> dict[str, float]:
    """What one scored batch says about its rewards, under ms-swift's metric names and ours.

    Ours are ``reward_coverage`` (share of completions that are scored), ``dropped_groups`` (share of groups
    with fewer than two) and ``unscored/<reward>``. The others are taken over what is scored.
    """
    rewards = result.rewards[result.scored]
    first = _first_rows(result.segments.index)
    group_kept = result.segments.count[first] > 0
    group_std = result.group_std[first][group_kept].float()
    figures = {
        "reward_coverage": result.scored.float().mean(),
        "dropped_groups": 1 - group_kept.float().mean(),
        "reward": rewards.mean(),
        "reward_std": _std(rewards) if scale == "batch" else group_std.mean(),
        "frac_reward_zero_std": torch.isclose(group_std, torch.zeros_like(group_std)).float().mean(),
    }
    if len(first) == len(result.segments.index):  # an evaluation of one completion per prompt
        figures["reward_std"] = _std(rewards) if scale == "batch" else torch.zeros(())
        figures["frac_reward_zero_std"] = torch.ones(())
    for name, column in zip(names, rewards_per_func.T, strict=True):
        valid = column[column.isfinite()]
        figures[f"rewards/{name}/mean"] = valid.mean()
        figures[f"rewards/{name}/std"] = _std(valid)
        figures[f"unscored/{name}"] = 1 - column.isfinite().float().mean()
    return {key: float(value) for key, value in figures.items() if value.isfinite()}


def per_token_kl(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """The k3 estimate of KL(policy || reference) of each token, clamped as the host's loss clamps it."""
    log_ratio = (ref_logps - logps).clamp(-20, 20)
    return (log_ratio.exp() - log_ratio - 1).clamp(-10, 10)


@dataclass
class WeightedMean:
    """A mean over tokens of many micro-batches, whatever their sizes."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, total: float, weight: float) -> None:
        """Add the sum over some tokens and their number."""
        if math.isfinite(total):
            self.total += total
            self.weight += weight

    @property
    def value(self) -> float:
        """The mean; NaN before anything was added."""
        return self.total / self.weight if self.weight else math.nan


def with_mean_for_nonfinite(values: Sequence[Tensor]) -> list[Tensor]:
    """The values with the mean of the finite ones in the place of others; empty if none is finite."""
    good = [value for value in values if math.isfinite(float(value))]
    if not good:
        return []
    mean = sum(good) / len(good)
    return [value if math.isfinite(float(value)) else mean for value in values]


def _first_rows(index: Tensor) -> Tensor:
    """Row at which each group is first met, ``(groups,)``."""
    groups = int(index.max()) + 1 if index.numel() else 0
    rows = torch.arange(len(index))
    return torch.full((groups,), len(index)).scatter_reduce(0, index, rows, "amin")


def _std(values: Tensor) -> Tensor:
    """Sample deviation; 0 of one value, NaN of none."""
    return values.std() if values.numel() > 1 else values.sum() * 0 / values.numel()
