"""Advantages of completions against the scored members of their group, and figures about their rewards.

A reward function returns a value or "not scored" (None, kept as NaN; infinities, too). ms-swift takes a
missing score for 0: of ``[1, 1, 1, None]`` the last gets the advantage -1.5. Here an unscored completion has
0, and a group with fewer than two scored members gives no advantage at all.

Statistics are taken in double precision, exactly for groups of equal rewards: in single precision a group of
eight times 0.1 has a deviation of 8e-9, which scaling turns into an advantage of 7e-5 (-0.29 with ``gdpo``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

Estimator = Literal["grpo", "rloo", "reinforce_plus_plus"]
Scale = Literal["group", "batch", "none", "gdpo"]

STD_EPSILON = 1e-4  # ms-swift's; added to a deviation before dividing by it
GDPO_EPSILON = 1e-8


@dataclass(frozen=True)
class Segments:
    """The groups of a batch, and which rows count in their statistics."""

    index: Int[Tensor, " completions"]  # number of each completion's group, from 0
    member: Bool[Tensor, " completions"]  # completions that count

    @classmethod
    def of(cls, group: Int[Tensor, " completions"], member: Bool[Tensor, " completions"]) -> Segments:
        """Segments of completions with any integer group ids, `member` saying which of them count."""
        return cls(torch.unique(group.cpu(), return_inverse=True)[1], member)

    @cached_property
    def count(self) -> Float64[Tensor, " completions"]:
        """For each completion the number of its group's members."""
        return self.total(torch.ones(len(self.index), dtype=torch.float64))

    def total(self, values: Float64[Tensor, " completions"]) -> Float64[Tensor, " completions"]:
        """For each completion the sum over its group's members."""
        counted = torch.where(self.member, values, 0.0)
        return torch.zeros_like(counted).index_add(0, self.index, counted)[self.index]

    def mean(self, values: Float64[Tensor, " completions"]) -> Float64[Tensor, " completions"]:
        """For each completion the mean over its group's members; 0 in a group without members."""
        return self.total(values) / self.count.clamp(min=1)

    def std(self, values: Float64[Tensor, " completions"]) -> Float64[Tensor, " completions"]:
        """For each completion the sample deviation (ddof 1) of its group; 0 below two members."""
        squares = (values - self.mean(values)) ** 2
        return (self.total(squares) / (self.count - 1).clamp(min=1)).sqrt()


@dataclass(frozen=True)
class GroupAdvantages:
    """Advantages of a batch and what they were taken from."""

    advantages: Float[Tensor, " completions"]  # on the device of the rewards; 0 where not `kept`
    # On the CPU, like all that follow: a weighted sum of scores, less the KL penalty; NaN where not `scored`.
    rewards: Float[Tensor, " completions"]
    scored: Bool[Tensor, " completions"]  # completions that can be compared with their group
    kept: Bool[Tensor, " completions"]  # scored completions of groups with at least two of them
    segments: Segments  # the groups, with the kept completions as members

    @property
    def group_std(self) -> Float64[Tensor, " completions"]:
        """Deviation of the rewards in each completion's group, on the CPU; 0 in a dropped group."""
        return self.segments.std(self.rewards.double())


def group_advantages(
    rewards_per_func: Float[Tensor, "completions functions"],
    weights: Float[Tensor, " functions"],
    group: Int[Tensor, " completions"],
    *,
    estimator: Estimator = "grpo",
    scale: Scale = "group",
    penalty: Float[Tensor, " completions"] | None = None,
) -> GroupAdvantages:
    """Advantage of each completion against the scored members of its group.

    ``rewards_per_func`` is not finite where not scored; a function of weight 0 takes no part. ``group`` has
    each completion's group id; ``penalty`` is beta times a completion's KL.

    The estimators ``grpo`` and ``reinforce_plus_plus`` subtract the group's mean, ``rloo`` (arXiv 2402.14740)
    the mean of the others. The scale is the deviation of ``group`` or ``batch``; ``gdpo`` (arXiv 2601.05242)
    scales each function in its group, then the sum over the batch, but not for ``reinforce_plus_plus``.
    """
    device = rewards_per_func.device
    # A few numbers with many small decisions: read once, and decided where nothing waits for a GPU.
    values, weights = (part.detach().float().cpu() for part in (rewards_per_func, weights))
    group = group.cpu()
    counts = weights != 0  # a function of weight 0 is only watched
    values, weights = values[:, counts], weights[counts]
    values = torch.where(values.isfinite(), values, torch.nan)
    rewards = (values * weights).nansum(dim=1) - (0.0 if penalty is None else penalty.detach().float().cpu())
    scored = scored_completions(values, group) & rewards.isfinite()
    rewards = torch.where(scored, rewards, torch.nan)
    kept = scored & (Segments.of(group, scored).count >= 2)
    segments = Segments.of(group, kept)
    if scale == "gdpo" and estimator != "reinforce_plus_plus":
        raw = _gdpo(values.double(), weights.double(), segments)
    else:
        raw = _centred_and_scaled(rewards.double(), segments, estimator, scale)
    advantages = torch.where(kept, raw, 0.0).float()
    return GroupAdvantages(advantages.to(device, non_blocking=True), rewards, scored, kept, segments)


def scored_completions(
    values: Float[Tensor, "completions functions"], group: Int[Tensor, " completions"]
) -> Bool[Tensor, " completions"]:
    """Which completions can be compared with their group; NaN in ``values`` is "not scored".

    A function that scored nobody in a group does not apply to its prompt (mixed tasks) and is passed over.
    One that scored some members makes those that it did not score incomparable. At least one must apply.
    """
    has_score = ~values.isnan()
    if values.shape[1] == 0:  # pure distillation: no reward function, the teacher's signal comes later
        return torch.ones(values.shape[0], dtype=torch.bool)
    applies = torch.stack([Segments.of(group, column).count > 0 for column in has_score.T], dim=1)
    return applies.any(dim=1) & (has_score | ~applies).all(dim=1)


def _centred_and_scaled(
    rewards: Float64[Tensor, " completions"], segments: Segments, estimator: Estimator, scale: Scale
) -> Float64[Tensor, " completions"]:
    centred = rewards - segments.mean(rewards)
    if estimator == "rloo":
        centred = centred * segments.count / (segments.count - 1).clamp(min=1)
    spread_of = centred if estimator == "reinforce_plus_plus" else rewards
    if scale == "group":
        return centred / (segments.std(spread_of) + STD_EPSILON)
    if scale == "batch":
        return centred / (_std(spread_of[segments.member]) + STD_EPSILON)
    return centred


def _gdpo(
    values: Float64[Tensor, "completions functions"],
    weights: Float64[Tensor, " functions"],
    segments: Segments,
) -> Float64[Tensor, " completions"]:
    total = torch.zeros_like(segments.count)
    for column, weight in zip(values.T, weights, strict=True):
        normed = (column - segments.mean(column)) / (segments.std(column) + GDPO_EPSILON)
        total = total + weight * normed.nan_to_num(0.0)
    of_kept = total[segments.member]
    # Without kept completions the figures are NaN, and so is the result, which is masked.
    return (total - of_kept.mean()) / (_std(of_kept) + GDPO_EPSILON)


def reward_statistics(
    result: GroupAdvantages,
    rewards_per_func: Float[Tensor, "completions functions"],
    names: Sequence[str],
    scale: Scale,
) -> dict[str, float]:
    """Figures about the rewards of one scored batch, under ms-swift's metric names and ours.

    Ours are ``reward_coverage`` (share of completions that are scored), ``dropped_groups`` (share of groups
    with fewer than two) and ``unscored/<reward>``. The others are taken over what is scored.
    """
    rewards = result.rewards[result.scored]
    rewards_per_func = rewards_per_func.cpu()
    groups = result.segments.index.tolist()
    first = [groups.index(group) for group in sorted(set(groups))]  # row at which each is met
    group_kept = result.segments.count[first] > 0
    group_std = result.group_std[first][group_kept].float()
    if len(first) == len(groups):  # an evaluation of one completion per prompt
        group_std = torch.zeros(1)
    figures = {
        "reward_coverage": result.scored.float().mean(),
        "dropped_groups": 1 - group_kept.float().mean(),
        "reward": rewards.mean(),
        "reward_std": _std(rewards) if scale == "batch" else group_std.mean(),
        "frac_reward_zero_std": torch.isclose(group_std, torch.zeros_like(group_std)).float().mean(),
    }
    for name, column in zip(names, rewards_per_func.T, strict=True):
        valid = column[column.isfinite()]
        figures[f"rewards/{name}/mean"] = valid.mean()
        figures[f"rewards/{name}/std"] = _std(valid)
        figures[f"unscored/{name}"] = 1 - column.isfinite().float().mean()
    return {key: float(value) for key, value in figures.items() if value.isfinite()}


def _std(values: Float[Tensor, " values"]) -> Float[Tensor, ""]:
    """Sample deviation; 0 of one value, NaN of none."""
    return values.std() if values.numel() > 1 else values.sum() * 0 / values.numel()
