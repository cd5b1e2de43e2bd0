"""Puts the catalogue into the host's ``orms`` table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from swift.rewards.orm import ORM, orms

from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.contract import Reward, Score


class RewardORM(ORM):
    """One reward of the catalogue as the host calls it: a batch of completions with their columns."""

    reward: ClassVar[Reward]

    def __call__(self, completions: Sequence[str], **columns: Any) -> list[Score]:
        """Score a batch.

        Args:
            completions: The texts, one per row.
            **columns: Every column as a list with one value per row, and the host's ``trainer_state``.
        """
        reward = self.reward
        present = [name for name in reward.columns if columns.get(name) is not None]
        return [
            reward(completion, {name: columns[name][row] for name in present})
            for row, completion in enumerate(completions)
        ]


def register_orms() -> list[str]:
    """Register every reward under its name.

    The host names its metrics after the class, so each reward gets a class of its own name.
    """
    for name, reward in catalogue.all_rewards().items():
        orms[name] = type(name, (RewardORM,), {"reward": reward, "__doc__": reward.__doc__})
    return list(catalogue.NAMES)
