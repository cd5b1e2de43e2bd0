"""Runs one reward of the catalogue over a batch: in place, in child processes, or awaited."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache

from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.contract import Outcome, Reward, Score, Unscorable
from swift_grpo_ext.rewards.runtime.batch import Batch, Composition, Prepared
from swift_grpo_ext.rewards.runtime.diagnosis import diagnose
from swift_grpo_ext.rewards.runtime.ledger import (
    Failure,
    FailureKind,
    ledger,
    record_failure,
    replay_file,
    row_in_words,
    say,
)
from swift_grpo_ext.rewards.runtime.pool import Answer, Pool
from swift_grpo_ext.rewards.runtime.rules import SETTING, RewardTable, load_table
from swift_grpo_ext.rewards.runtime.worker import CatalogueJob
from swift_grpo_ext.settings import Settings, current_settings

DEFAULT_LIMIT = 10.0  # seconds for one completion in a child process, if no setting says otherwise


def worker_count(settings: Settings) -> int:
    """Child processes of this rank: as set, else its share of the cores, at most 4."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return settings.reward_workers or max(1, min(4, (os.cpu_count() or 1) // ranks))


@lru_cache(maxsize=1)
def catalogue_pool() -> Pool:
    """The children that run the catalogue's rewards, shared by all of them."""
    settings = current_settings()
    names = tuple(name for name, reward in catalogue.all_rewards().items() if reward.cost == "process")
    return Pool(CatalogueJob(names), worker_count(settings), settings.reward_timeout or DEFAULT_LIMIT)


class Runner:
    """One reward with its rules, ms-swift's `arguments` and the parameters `given` beside its name."""

    def __init__(
        self,
        reward: Reward,
        arguments: object = None,
        table: RewardTable | None = None,
        given: Mapping[str, object] | None = None,
    ) -> None:
        self.reward = reward
        self._frame: str | None = None
        table = load_table(current_settings().reward_table) if table is None else table
        rule = table.rule(reward.name)
        defaults = _host_defaults(reward, arguments)
        self.parameters = reward.declared.checked({**defaults, **rule.parameters, **(given or {})})
        for name in reward.required:
            if not self.parameters.get(name):
                fix = f'{SETTING}={{"rewards": {{"{reward.name}": {{"parameters": {{"{name}": "..."}}}}}}}}'
                raise SettingsError(f"{reward.name} needs the parameter {name!r}", fix=fix)
        others = cache(
            lambda name: Runner(catalogue.get_reward(name), arguments, table).in_frame(self._frame)
        )
        inputs = dict(reward.inputs)
        self.composition = Composition(rule, table.task_column, reward.low, others, inputs, reward.gold)
        self._batches = 0
        self._replay = replay_file(getattr(arguments, "output_dir", None))
        self._book = ledger(reward.name)

    def in_frame(self, frame: str | None) -> Runner:
        """Itself, with the frame that the model's family writes in where nothing else declares one."""
        self._frame = frame
        if frame is not None and "frame" in self.reward.parameters and "frame" not in self.parameters:
            self.parameters["frame"] = frame
            if frame != self.reward.parameters["frame"]:
                say(f"reward {self.reward.name!r}: answers are read in {frame}, as its model writes")
        return self

    def __call__(self, batch: Batch) -> list[Score]:
        """Score a batch."""
        return self._told(batch, self.outcomes(batch))

    async def awaited(self, batch: Batch) -> list[Score]:
        """Score a batch with an async reward."""
        return self._told(batch, await self.awaited_outcomes(batch))

    def outcomes(self, batch: Batch) -> list[Outcome]:
        """Score a batch, with the reason of each None; rows left to other rewards have none."""
        prepared = self.composition.prepare(batch)
        run = self._in_children if self.reward.cost == "process" else self._in_place
        return self._settled(prepared, run(prepared.batch))

    async def awaited_outcomes(self, batch: Batch) -> list[Outcome]:
        """`outcomes` of an async reward."""
        prepared = self.composition.prepare(batch)
        rows = range(len(prepared.batch))
        found = await asyncio.gather(*(self._await_one(prepared.batch, row) for row in rows))
        return self._settled(prepared, found)

    def _in_place(self, batch: Batch) -> list[Outcome]:
        outcomes = []
        for index, completion in enumerate(batch.completions):
            with self._watched(batch, index) as found:
                row = batch.row(index, self.reward.columns)
                found.append(self.reward.outcome(completion, row, self.parameters))
            outcomes += found
        return outcomes

    async def _await_one(self, batch: Batch, index: int) -> Outcome:
        with self._watched(batch, index) as found:
            row = batch.row(index, self.reward.columns)
            found.append(await self.reward.awaited(batch.completions[index], row, self.parameters))
        return found[0]

    @contextmanager
    def _watched(self, batch: Batch, index: int) -> Iterator[list[Outcome]]:
        """Times one completion; what scoring it raises becomes its outcome."""
        found: list[Outcome] = []
        started = time.perf_counter()
        try:
            yield found
        except Exception as error:
            found.append(self._failure(batch, index, repr(error), traceback.format_exc()))
        finally:
            self._book.scored(1, [time.perf_counter() - started])

    def _in_children(self, batch: Batch) -> list[Outcome]:
        rows = [(text, batch.row(row, self.reward.columns)) for row, text in enumerate(batch.completions)]
        answers = catalogue_pool().map([(self.reward.name, *row, self.parameters) for row in rows])
        self._book.scored(len(batch), [answer.seconds for answer in answers])
        return [self._outcome(batch, index, answer) for index, answer in enumerate(answers)]

    def _outcome(self, batch: Batch, index: int, answer: Answer) -> Outcome:
        if answer.ended == "value":
            return Outcome(*answer.value)
        if answer.ended == "failed":
            return self._failure(batch, index, answer.value.strip().splitlines()[-1], answer.value)
        # The completion is what made the child hang or break, and what cannot be checked is not right.
        self._book.timed_out()
        self._recorded(batch, index, "timeout", answer.value)
        return Outcome(self.reward.low, answer.value)

    def _failure(self, batch: Batch, index: int, what: str, details: str) -> Outcome:
        self._book.failed(self._recorded(batch, index, "error", what, details))
        return Outcome(None, what, failed=True)

    def _recorded(self, batch: Batch, index: int, kind: FailureKind, what: str, details: str = "") -> Failure:
        failure = Failure(self.reward.name, kind, what, row_in_words(index, batch.row(index)), details)
        record_failure(self._replay, failure, batch.completions[index], batch.row(index, self.reward.columns))
        return failure

    def _settled(self, prepared: Prepared, found: Sequence[Outcome]) -> list[Outcome]:
        """Outcomes of the whole batch. Of the batches 1, 2, 4, 8, ... the frame is looked at."""
        scores = [outcome.score for outcome in found]
        self._batches += 1
        if "frame" in self.reward.parameters and self._batches & (self._batches - 1) == 0:
            diagnose(self.reward, self.parameters, prepared.batch, scores)
        whole = [Outcome(score) for score in self.composition.finish(prepared, scores)]
        for index, outcome in zip(prepared.indices, found, strict=True):
            whole[index] = replace(outcome, score=whole[index].score)
        return whole

    def _told(self, batch: Batch, outcomes: Sequence[Outcome]) -> list[Score]:
        """The scores; rows that cannot be scored are counted, and named the first time."""
        for index, outcome in enumerate(outcomes):
            told = outcome.score is None and outcome.reason and not outcome.failed
            if told and self._book.unscored(outcome.reason):
                row = batch.row(index)
                known = told_columns(self.reward, {name: [value] for name, value in row.items()})
                meant = next(known, "") if outcome.reason.startswith("column ") else ""
                unscored = f"reward {self.reward.name!r} does not score a row: {outcome.reason}"
                say(meant or f"{unscored} [{row_in_words(index, row)}]")
        return [outcome.score for outcome in outcomes]

    def look_at(self, columns: Mapping[str, Sequence[object]]) -> None:
        """Say at the start which of several columns is the gold, and which mean something else."""
        for line in told_columns(self.reward, columns, self.composition.rule.gold):
            say(line)


def told_columns(
    reward: Reward, columns: Mapping[str, Sequence[object]], named: str | None = None
) -> Iterator[str]:
    """What a user should know of a dataset's columns before it is read; `named` is the table's gold."""
    filled = [name for name, values in columns.items() if any(value not in (None, "") for value in values)]
    for name in (name for name in reward.row_settable if name in filled):
        try:
            for value in columns[name]:
                reward.row_parameters({name: value})
        except Unscorable:
            renamed = f"""--columns '{{"{name}": "{name}_of_data"}}'"""
            what = f"column {name!r} is a parameter of rewards, and rows hold something else"
            yield f"{what}: {renamed} renames it"
    golds = [name for name in reward.gold if name in filled]
    if len(golds) > 1 and golds[0] != "solution" and not named:
        rest = " and ".join(map(repr, golds[1:]))
        table = f'{SETTING}={{"rewards": {{"{reward.name}": {{"gold": "{golds[1]}"}}}}}}'
        what = f"reward {reward.name!r} reads its gold from column {golds[0]!r}, not {rest}"
        yield f"{what}; {table} changes that"


def _host_defaults(reward: Reward, arguments: object) -> dict[str, object]:
    """Parameters that the host's own arguments set."""
    found = {}
    for parameter, names in reward.host_defaults.items():
        values = (getattr(arguments, name, None) for name in names)
        value = next((value for value in values if value is not None), None)
        if value is not None:
            found[parameter] = value
    return found
