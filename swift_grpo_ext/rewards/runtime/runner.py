"""Runs one reward of the catalogue over a batch: in place, in child processes, or awaited."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from statistics import fmean

from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.contract import Outcome, Reward, Score, finished
from swift_grpo_ext.rewards.gold.frames import FRAMES
from swift_grpo_ext.rewards.runtime.batch import Batch, Composition
from swift_grpo_ext.rewards.runtime.ledger import (
    FailureKind,
    Report,
    is_new,
    ledger,
    replay_file,
    row_in_words,
    say,
)
from swift_grpo_ext.rewards.runtime.pool import Pool
from swift_grpo_ext.rewards.runtime.rules import SETTING, RewardTable, column_notes, load_table
from swift_grpo_ext.rewards.runtime.worker import CatalogueJob
from swift_grpo_ext.settings import current_settings

LOW = 0.35  # share of a reward's range below which the mean score of a batch is looked at
GAIN = 0.25  # share of the range by which another frame must be better
SAMPLES = 16  # completions that are read in every frame
DEFAULT_LIMIT = 10.0  # seconds for one completion in a child process, if no setting says otherwise


def worker_count() -> int:
    """Child processes of this rank: as set, else its share of the cores, at most 4."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return current_settings().reward_workers or max(1, min(4, (os.cpu_count() or 1) // ranks))


@lru_cache(maxsize=1)
def catalogue_pool() -> Pool:
    """The children that run the catalogue's rewards, shared by all of them."""
    names = tuple(name for name, reward in catalogue.all_rewards().items() if reward.cost == "process")
    return Pool(CatalogueJob(names), worker_count(), current_settings().reward_timeout or DEFAULT_LIMIT)


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
        defaults = {
            parameter: value
            for parameter, names in reward.host_defaults.items()
            for name in reversed(names)  # the first that is set counts
            if (value := getattr(arguments, name, None)) is not None
        }
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
        return finished(self.awaited(batch))

    async def awaited(self, batch: Batch) -> list[Score]:
        """Score a batch inside a running loop."""
        return self._reported(batch, await self.composition.scored(batch, self._scored))

    def outcomes(self, batch: Batch) -> list[Outcome]:
        """Score a batch, with the reason of each None; rows left to other rewards have none."""
        return self.reward.waited(self.composition.scored(batch, self._scored))

    async def _scored(self, batch: Batch) -> list[Outcome]:
        """Of the completions that it applies to. Of the batches 1, 2, 4, 8, ... the frame is looked at."""
        scored = (self._one(batch, row) for row in range(len(batch)))
        if self.reward.cost == "process":
            outcomes = self._in_children(batch)
        elif self.reward.cost == "async":
            outcomes = await asyncio.gather(*scored)
        else:
            outcomes = [finished(outcome) for outcome in scored]
        self._batches += 1
        if "frame" in self.reward.parameters and self._batches & (self._batches - 1) == 0:
            diagnose(self.reward, self.parameters, batch, [outcome.score for outcome in outcomes])
        return outcomes

    async def _one(self, batch: Batch, index: int) -> Outcome:
        started = time.perf_counter()
        row = batch.row(index, self.reward.columns)
        try:
            return await self.reward.awaited(batch.completions[index], row, self.parameters)
        except Exception as error:
            return self._failed(batch, index, "error", repr(error), traceback.format_exc())
        finally:
            self._book.add(Report(completions=1, seconds=[time.perf_counter() - started]))

    def _in_children(self, batch: Batch) -> list[Outcome]:
        rows = [(text, batch.row(row, self.reward.columns)) for row, text in enumerate(batch.completions)]
        answers = catalogue_pool().map([(self.reward.name, *row, self.parameters) for row in rows])
        self._book.add(Report(completions=len(batch), seconds=[answer.seconds for answer in answers]))
        outcomes = []
        for index, answer in enumerate(answers):
            if answer.ended == "value":
                outcomes.append(Outcome(*answer.value))
            else:
                kind: FailureKind = "error" if answer.ended == "failed" else "timeout"
                outcomes.append(self._failed(batch, index, kind, answer.reason, answer.traceback))
        return outcomes

    def _failed(self, batch: Batch, index: int, kind: FailureKind, what: str, details: str) -> Outcome:
        """No score; the lowest at a timeout: what cannot be checked is not right, and no fault of ours."""
        counted = kind != "timeout"
        batch.select([index]).failed(self.reward.name, kind, what, details, self._replay, counted)
        return Outcome(None, what, failed=True) if counted else Outcome(self.reward.low, what)

    def _reported(self, batch: Batch, outcomes: Sequence[Outcome]) -> list[Score]:
        """The scores; rows that cannot be scored are counted, and named the first time."""
        for index, outcome in enumerate(outcomes):
            if outcome.score is not None or outcome.failed or not outcome.reason:
                continue
            kind = outcome.reason.split("'")[0][:80]
            self._book.add(Report(unscored=Counter([kind])))
            if is_new(f"{self.reward.name} does not score: {kind}"):
                row = batch.row(index)
                notes = column_notes(self.reward, {name: [value] for name, value in row.items()})
                meant = next(notes, "") if kind.startswith("column ") else ""
                unscored = f"reward {self.reward.name!r} does not score a row: {outcome.reason}"
                say(meant or f"{unscored} [{row_in_words(index, row)}]")
        return [outcome.score for outcome in outcomes]

    def note_columns(self, columns: Mapping[str, Sequence[object]]) -> None:
        """Say at the start which of several columns is the gold, and which mean something else."""
        for line in column_notes(self.reward, columns, self.composition.rule.gold):
            say(line)


def diagnose(reward: Reward, parameters: Mapping[str, object], batch: Batch, scores: Sequence[Score]) -> None:
    """Say if another frame fits a low batch much better. It changes no score: frames are declared."""
    scored = [score for score in scores if score is not None]
    extent = reward.high - reward.low
    if not scored or (fmean(scored) - reward.low) / extent >= LOW:
        return
    declared = parameters.get("frame") or reward.parameters["frame"]
    declared_gold = parameters.get("gold_frame") or declared
    means: dict[tuple[object, object], float] = {}
    for frame, gold_frame in product(FRAMES, FRAMES):
        scores_there = [
            reward.outcome(completion, batch.row(index), parameters, frame=frame, gold_frame=gold_frame).score
            for index, completion in enumerate(batch.completions[:SAMPLES])
        ]
        if None not in scores_there:
            means[frame, gold_frame] = fmean(score for score in scores_there if score is not None)
    if (here := means.get((declared, declared_gold))) is None:
        return
    # Among equal readings, the one that differs least from what is declared.
    best = max(means, key=lambda pair: (means[pair], pair[0] == declared, pair[1] == declared_gold))
    if means[best] >= here + GAIN * extent:
        say(
            f"reward {reward.name!r}: the answers look like {best[0]} and the gold like {best[1]} (mean "
            f"score {means[best]:.2f}), but frame is {declared} and gold_frame {declared_gold} "
            f"({here:.2f}); set them in SWIFT_GRPO_EXT_REWARD_TABLE"
        )
