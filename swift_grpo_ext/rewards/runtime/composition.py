"""Rules around a reward: who is scored, on which gold, behind which gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.contract import Score
from swift_grpo_ext.rewards.gold import gold_from
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.log_once import say
from swift_grpo_ext.rewards.runtime.rules import SETTING, RewardRule

Scorer = Callable[[Batch], Sequence[Score]]


@dataclass(frozen=True)
class Prepared:
    """What is left to be scored, and how its scores become those of the whole batch."""

    batch: Batch  # the completions that the reward applies to, with gold and inputs in place
    indices: list[int]  # their places in the whole batch
    size: int  # completions of the whole batch
    closed: list[bool]  # for each completion of `batch`, whether its gate is closed


@dataclass(frozen=True)
class Composition:
    """One reward's rule, ready to use."""

    rule: RewardRule  # what the table says
    task_column: str  # the column that routes
    floor: float  # score behind a closed gate
    scorer: Callable[[str], Scorer]  # gives the scorer of another reward by name, for gates and inputs
    inputs: dict[str, str] = field(default_factory=dict)  # columns to fill, with the catalogue's own defaults
    gold: tuple[str, ...] = ()  # columns that the reward reads its gold from

    def prepare(self, batch: Batch) -> Prepared:
        """Route, look at the gate, rename the gold, and fill inputs."""
        self._check_columns(batch)
        indices = [index for index in range(len(batch)) if self._applies(batch, index)]
        part = batch.select(indices)
        closed = self._closed(part)  # with the gate's own gold, as the gate alone would be scored
        if self.rule.gold:
            part = replace(
                part, columns=gold_from(part.columns, self.gold, self.rule.gold, [None] * len(part))
            )
        for column, name in {**self.inputs, **self.rule.inputs}.items():
            if column not in part.columns:
                part = part.with_column(column, self.scorer(name)(part))
        return Prepared(part, indices, len(batch), closed)

    def finish(self, prepared: Prepared, scores: Sequence[Score]) -> list[Score]:
        """Scores of the whole batch: None where the reward does not apply, the floor behind closed gates."""
        whole: list[Score] = [None] * prepared.size
        for index, score, closed in zip(prepared.indices, scores, prepared.closed, strict=True):
            whole[index] = self.floor if closed and score is not None else score
        return whole

    def _applies(self, batch: Batch, index: int) -> bool:
        if not self.rule.tasks:
            return True
        tasks = batch.columns.get(self.task_column)
        return tasks is not None and self.rule.is_for(tasks[index])

    def _check_columns(self, batch: Batch) -> None:
        for name in ([self.rule.gold] if self.rule.gold else []) + [self.task_column] * bool(self.rule.tasks):
            if name not in batch.columns:
                say(
                    f"no row has the column {name!r} of the reward table, so none is scored by it [{SETTING}]"
                )

    def _closed(self, batch: Batch) -> list[bool]:
        if self.rule.gate is None:
            return [False] * len(batch)
        gate = get_reward(self.rule.gate)
        needed = gate.high if self.rule.gate_at is None else self.rule.gate_at
        return [score is not None and score < needed for score in self.scorer(gate.name)(batch)]
