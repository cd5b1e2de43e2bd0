"""Rules around a reward: who is scored, on which gold, behind which gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.contract import Score
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.rules import RewardRule

Scorer = Callable[[Batch], Sequence[Score]]


@dataclass(frozen=True)
class Prepared:
    """What is left to be scored, and how its scores become those of the whole batch.

    Attributes:
        batch: The completions that the reward applies to, with gold and inputs in place.
        indices: Their places in the whole batch.
        size: Completions of the whole batch.
        closed: For each completion of `batch`, whether its gate is closed.
    """

    batch: Batch
    indices: list[int]
    size: int
    closed: list[bool]


@dataclass(frozen=True)
class Composition:
    """One reward's rule, ready to use.

    Attributes:
        rule: What the table says.
        task_column: The column that routes.
        floor: Score behind a closed gate.
        scorer: Gives the scorer of another reward by name, for gates and inputs.
        inputs: Columns to fill, with the catalogue's own defaults.
    """

    rule: RewardRule
    task_column: str
    floor: float
    scorer: Callable[[str], Scorer]
    inputs: dict[str, str] = field(default_factory=dict)

    def prepare(self, batch: Batch) -> Prepared:
        """Route, rename the gold, fill inputs, and look at the gate."""
        indices = [index for index in range(len(batch)) if self._applies(batch, index)]
        part = batch.select(indices)
        if self.rule.gold and self.rule.gold in part.columns:
            part = part.with_column("solution", part.columns[self.rule.gold])
        for column, name in {**self.inputs, **self.rule.inputs}.items():
            if column not in part.columns:
                part = part.with_column(column, self.scorer(name)(part))
        return Prepared(part, indices, len(batch), self._closed(part))

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
        return tasks is not None and tasks[index] in self.rule.tasks

    def _closed(self, batch: Batch) -> list[bool]:
        if self.rule.gate is None:
            return [False] * len(batch)
        gate = get_reward(self.rule.gate)
        needed = gate.high if self.rule.gate_at is None else self.rule.gate_at
        return [score is not None and score < needed for score in self.scorer(gate.name)(batch)]
