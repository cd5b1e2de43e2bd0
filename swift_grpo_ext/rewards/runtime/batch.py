"""A batch of completions, what may be returned for it, and the rules around a reward: who is scored."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, SupportsFloat

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.contract import Columns, Outcome, Score
from swift_grpo_ext.rewards.gold.columns import gold_from
from swift_grpo_ext.rewards.runtime.ledger import (
    Failure,
    FailureKind,
    Report,
    announce,
    ledger,
    record_failure,
    row_in_words,
    say,
)
from swift_grpo_ext.rewards.runtime.rules import SETTING, RewardRule

CONTRACT = "https://swift.readthedocs.io/en/latest/Instruction/GRPO/DeveloperGuide/reward_function.html"
INFINITE = "infinite"  # why there is no score: it is not finite, or too large


def outcomes_of(output: object, completions: int, name: str) -> list[Outcome]:
    """One outcome for each completion; ms-swift would broadcast a single score to all, silently.

    A score that is not finite would make every advantage of its group NaN, and is none; the reason says so.

    Raises:
        RewardError: The output is not a list with one number or None for each completion.
    """
    what = f"reward {name!r} returned"
    fix = "return {} number or None for each completion{} (" + CONTRACT + ")"
    if isinstance(output, (str, bytes, dict)) or not isinstance(output, Iterable):
        raise RewardError(f"{what} {type(output).__name__}", fix=fix.format("a list with one", ""))
    scores = list(output)
    if len(scores) != completions:
        fix = fix.format("one", ", in their order")
        raise RewardError(f"{what} {len(scores)} scores for {completions} completions", fix=fix)
    return [_outcome(score, row, what) for row, score in enumerate(scores)]


def _outcome(score: SupportsFloat | None, row: int, what: str) -> Outcome:
    if score is None:
        return Outcome(None)
    try:
        value = float(score)
    except OverflowError:
        value = math.inf
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
        raise RewardError(
            f"{what} {str(score)[:60]!r} ({type(score).__name__})",
            where=f"completion {row} of the batch",
            fix=f"return a number, or None for a completion that cannot be scored ({CONTRACT})",
        ) from None
    if math.isfinite(value):
        return Outcome(value)
    return Outcome(None, "not a number" if math.isnan(value) else INFINITE)


@dataclass(frozen=True)
class Batch:
    """Completions and everything that came with them."""

    completions: Sequence[str]
    columns: Mapping[str, Sequence[Any]]  # column name to one value per completion
    shared: Mapping[str, Any]  # what does not belong to single completions, such as ``trainer_state``
    first: int = 0  # place of its first completion in the batch that it was selected from

    @classmethod
    def of(cls, completions: Sequence[str], arguments: Mapping[str, object]) -> Batch:
        """Sort the host's keyword arguments into columns and the rest."""
        size = len(completions)
        columns = {
            name: value
            for name, value in arguments.items()
            if isinstance(value, (list, tuple)) and len(value) == size
        }
        return cls(completions, columns, {name: arguments[name] for name in arguments if name not in columns})

    def __len__(self) -> int:
        return len(self.completions)

    def row(self, index: int, names: Sequence[str] | None = None) -> Columns:
        """The columns of one completion, all or those of these names."""
        wanted = self.columns if names is None else [name for name in names if name in self.columns]
        return {name: self.columns[name][index] for name in wanted}

    def failed(
        self,
        reward: str,
        kind: FailureKind,
        what: str,
        details: str,
        replay: Path | None,
        counted: bool = True,
    ) -> None:
        """Write all of it to the replay file, and count it unless it is no fault of the reward."""
        several = f"one of {len(self)} completions, the first is " if len(self) > 1 else ""
        place = several + row_in_words(self.first, self.row(0))
        failure = Failure(reward, kind, what, place, details, str(replay or ""))
        report = Report(failures=len(self), first=failure) if counted else Report()
        report.timeouts = int(kind == "timeout")
        ledger(reward).add(report)
        if counted:
            announce(failure)
        try:
            for index, completion in enumerate(self.completions):
                record_failure(replay, failure, completion, self.row(index))
        except OSError as error:
            say(f"failed completions are not kept in {replay}: {error}")

    def select(self, indices: Sequence[int]) -> Batch:
        """The batch of these completions."""
        if len(indices) == len(self):
            return self
        chosen = {name: [values[index] for index in indices] for name, values in self.columns.items()}
        completions = [self.completions[index] for index in indices]
        return replace(self, completions=completions, columns=chosen, first=indices[0] if indices else 0)


Scorer = Callable[[Batch], Sequence[Score]]


@dataclass(frozen=True)
class Composition:
    """One reward's rule, ready to use; by default none, so that every completion is scored as it is."""

    rule: RewardRule = field(default_factory=RewardRule)
    task_column: str = "task"  # it routes rows
    floor: float = 0.0  # score behind a closed gate
    scorer: Callable[[str], Scorer] | None = None  # of other rewards by name, for gates and inputs
    inputs: dict[str, str] = field(default_factory=dict)  # columns to fill, with the catalogue's own defaults
    gold: tuple[str, ...] = ()  # columns that the reward reads its gold from

    async def scored(
        self, batch: Batch, score: Callable[[Batch], Awaitable[Sequence[Outcome]]]
    ) -> list[Outcome]:
        """Outcomes of a batch: rows that it applies to, with gold and inputs in place, behind the gate."""
        rule = self.rule
        for name in ([rule.gold] if rule.gold else []) + [self.task_column] * bool(rule.tasks):
            if name not in batch.columns:
                what = f"no row has the column {name!r} of the reward table"
                say(f"{what}, so none is scored by it [{SETTING}]")
        tasks = batch.columns.get(self.task_column, [None] * len(batch))
        indices = [row for row, task in enumerate(tasks) if not rule.tasks or rule.is_for(task)]
        part = batch.select(indices)
        closed = self._closed(part)  # with the gate's own gold, as the gate alone would be scored
        if rule.gold:
            part = replace(part, columns=gold_from(part.columns, self.gold, rule.gold, [None] * len(part)))
        for column, name in {**self.inputs, **rule.inputs}.items():
            if column not in part.columns:
                part = replace(part, columns={**part.columns, column: self._scored(name, part)})
        whole = [Outcome(None)] * len(batch)
        scored = await score(part) if indices else []
        for index, outcome, behind in zip(indices, scored, closed, strict=True):
            shut = behind and outcome.score is not None
            whole[index] = replace(outcome, score=self.floor) if shut else outcome
        return whole

    def _closed(self, batch: Batch) -> list[bool]:
        if self.rule.gate is None:
            return [False] * len(batch)
        gate = get_reward(self.rule.gate)
        needed = gate.high if self.rule.gate_at is None else self.rule.gate_at
        return [score is not None and score < needed for score in self._scored(gate.name, batch)]

    def _scored(self, name: str, batch: Batch) -> Sequence[Score]:
        assert self.scorer is not None
        return self.scorer(name)(batch)
