"""Puts the catalogue into the host's ``orms`` table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from swift.rewards.orm import ORM, AsyncORM, orms

from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.contract import Reward, Score
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.rules import load_table
from swift_grpo_ext.rewards.runtime.runner import Runner
from swift_grpo_ext.settings import current_settings


class RewardORM(ORM):
    """One reward of the catalogue as the host calls it: a batch of completions with their columns."""

    reward: ClassVar[Reward]
    keeps_ledger = True

    def __init__(self, args: Any = None, **kwargs: Any) -> None:
        super().__init__(args, **kwargs)
        self.runner = Runner(self.reward, args)

    def __call__(self, completions: Sequence[str], **columns: Any) -> list[Score]:
        """Score a batch.

        Args:
            completions: The texts, one per row.
            **columns: Every column as a list with one value per row, and the host's ``trainer_state``.
        """
        return self.runner(Batch.of(completions, columns))


class AsyncRewardORM(AsyncORM):
    """The same for a reward that waits for others; the host awaits it together with the other async ones."""

    reward: ClassVar[Reward]
    keeps_ledger = True

    def __init__(self, args: Any = None, **kwargs: Any) -> None:
        super().__init__(args, **kwargs)
        self.runner = Runner(self.reward, args)

    async def __call__(self, completions: Sequence[str], **columns: Any) -> list[Score]:
        """Score a batch; arguments as for `RewardORM`."""
        return await self.runner.awaited(Batch.of(completions, columns))


def register_orms() -> list[str]:
    """Register every reward under its name, and check the reward table.

    The host names its metrics after the class, so each reward gets a class of its own name.

    Raises:
        SettingsError: The reward table cannot be read.
    """
    load_table(current_settings().reward_table)
    for name, reward in catalogue.all_rewards().items():
        base = AsyncRewardORM if reward.cost == "async" else RewardORM
        orms[name] = type(name, (base,), {"reward": reward, "__doc__": reward.__doc__})
    return list(catalogue.NAMES)
