"""Shares that describe the completions of a generation batch and their scores."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from swift_grpo_ext.watch.records import RewardFacts

_NOISE = (
    1e-3  # advantages below this are rounding, where ms-swift itself finds the rewards of every group equal
)


def reward_facts(name: str, scores: Sequence[float | None]) -> RewardFacts:
    """Facts of one function's scores of the completions that it is for.

    None, NaN and infinities count as not scored; a function that is for no completion left none unscored.
    """
    valid = [score for score in scores if _is_score(score)]
    if not valid:
        return RewardFacts(name, scored=0.0 if scores else 1.0)
    value, count = Counter(round(score, 6) + 0.0 for score in valid).most_common(1)[0]
    return RewardFacts(name, len(valid) / len(scores), value, count / len(valid))


def meant_scores(scores: Sequence[float | None], group_size: int) -> Sequence[float | None]:
    """Scores without groups that a user's own reward left out whole, if it scored others.

    None means "not scored": for every completion of a prompt it says that the reward is not for this row.
    """
    if group_size < 2:
        return scores
    starts = range(0, len(scores), group_size)
    groups = [scores[start : start + group_size] for start in starts]
    scored = [group for group in groups if any(map(_is_score, group))]
    return [score for group in scored or groups for score in group]


def _is_score(score: float | None) -> TypeGuard[float]:
    return score is not None and math.isfinite(score)


def identical_share(completions: Sequence[str], group_size: int) -> float | None:
    """Share of groups (neighbours of that number) in which every completion is the same text."""
    if group_size < 2 or len(completions) < group_size:
        return None
    starts = range(0, len(completions) - group_size + 1, group_size)
    same = [len(set(completions[start : start + group_size])) == 1 for start in starts]
    return sum(same) / len(same)


def empty_share(completions: Sequence[str]) -> float | None:
    """Share of completions without a visible character."""
    return sum(not text.strip() for text in completions) / len(completions) if completions else None


def advantaged_share(advantages: Sequence[float], figures: Mapping[str, float]) -> float | None:
    """Share of completions with an advantage beyond rounding, of which Adam makes whole steps, too."""
    if not advantages:
        return None
    least = _NOISE if figures.get("frac_reward_zero_std") == 1 else 0.0
    return sum(not abs(value) <= least for value in advantages) / len(advantages)
