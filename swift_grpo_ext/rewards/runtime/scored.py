"""The wrapper of every reward function of a run, the catalogue's and a user's: `Scored`."""

import asyncio
import copy
import inspect
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import astuple, replace
from functools import cached_property, partial
from typing import TypeAlias

from pebble import concurrent

from swift_grpo_ext.errors import NEAR, RewardError
from swift_grpo_ext.rewards.catalogue import meant_by
from swift_grpo_ext.rewards.contract import Columns, Outcome, RewardFunction, Score, finished
from swift_grpo_ext.rewards.gold.columns import gold_from
from swift_grpo_ext.rewards.runtime.batch import Batch, outcomes_of
from swift_grpo_ext.rewards.runtime.ledger import (
    Failure,
    Report,
    announce,
    report_of,
    row_in_words,
    say,
)
from swift_grpo_ext.rewards.runtime.pool import Pool
from swift_grpo_ext.rewards.runtime.rules import SETTING, RewardRule, RewardTable
from swift_grpo_ext.rewards.runtime.worker import Reply, answered, told

KILLS = 3  # killed completions of a batch after which its others are skipped
Part: TypeAlias = Sequence[int]  # the rows of a batch in one call of a reward


async def within(seconds: float, call: Coroutine[object, object, Reply]) -> Reply:
    """The reply of a coroutine in a daemon thread of its own, which is abandoned at the limit."""
    thread = concurrent.thread(asyncio.run)(call)
    try:
        return await asyncio.wait_for(asyncio.wrap_future(thread), seconds)
    except TimeoutError:
        return Reply("timeout", f"no answer within {seconds:g} s")


async def called(
    function: RewardFunction, name: str, completions: list[str], arguments: dict[str, object]
) -> list[tuple[object, ...]]:
    """Call a reward function, also a coroutine function, on completions; results as JSON can carry them.

    Each as the fields of an `Outcome`.
    """
    output = function(completions, **arguments)
    output = await output if inspect.iscoroutine(output) else output
    return [astuple(outcome) for outcome in outcomes_of(output, len(completions), name)]


class Scored:
    """A reward function that always returns a score or None for each completion, and never raises.

    What it raises, and what runs into its limit, is counted, and all ranks decide together whether the run
    goes on.

    Args:
        function: As ms-swift calls it: a batch of completions and columns, to a list of scores; or a
            coroutine function.
        name: Under which it is counted and logged.
        limit: Seconds for one completion, or for the batch of a function with ``whole_batch = True``; its own
            ``time_limit`` counts before that. It then runs in processes that can be killed, or in a thread if
            it is awaited.

    Raises:
        RewardError: The limit is not above 0, or the function cannot be sent to a process.
    """

    reads: tuple[str, ...] | None = None  # the columns that it is given; None: all
    gold: tuple[str, ...] = ("solution",)  # columns that its gold may be in
    awaited = False  # ms-swift awaits it, together with others
    one_by_one = False  # each completion is scored alone, also without a limit
    tells = True  # it names the first row of each kind that it cannot score
    on_timeout: Score = None  # score of a completion that ran into the limit, where that is not a fault
    kills: int | None = KILLS
    memory: int | None = None
    first: tuple[object, ...] | None = None  # arguments of a first call, which imports what it needs
    rule = RewardRule()  # what the reward table says about it
    task_column = "task"  # names the column that routes rows

    def __init__(
        self,
        function: RewardFunction,
        name: str,
        *,
        limit: float | None = None,
    ) -> None:
        self.limit = getattr(function, "time_limit", limit)
        if self.limit is not None and not self.limit > 0:
            raise RewardError(f"a time limit of {self.limit} s", where=name, fix="give seconds above 0")
        self.call = partial(called, function, name)
        self.whole_batch = getattr(function, "whole_batch", False)
        self.name = name
        self.outcomes: list[Outcome] = []  # of the last batch
        if self.pool is not None and not self.one_by_one:
            self.pool.warm_up()  # it imports while the model loads

    def follow(self, table: RewardTable, *names: str) -> None:
        """Follow the rule that the reward table has for it under any of its names."""
        self.rule = table.rule(*names)
        self.task_column = table.task_column

    def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:
        """Score a batch."""
        return finished(self.scored(Batch.of(completions, columns)))

    @cached_property
    def pool(self) -> Pool | None:
        """The processes that it runs in, if it has a limit and is not awaited.

        Raises:
            RewardError: It cannot be sent to one.
        """
        if self.limit is None or self.awaited:
            return None
        # The run's plugin files; none if ms-swift is not loaded, or keeps no record of them.
        files: Callable[[], list[str]] = getattr(sys.modules.get("swift.utils"), "get_external_files", list)
        plugins = [] if self.one_by_one else files()  # rewards of the catalogue need none
        return Pool(
            self.call, self.limit, plugins=plugins, kills=self.kills, memory=self.memory, first=self.first
        )

    def with_gold(self, columns: Columns, missing: object = None) -> Columns:
        """Columns of a row or a batch in which the gold that the reward table names is its only one."""
        return gold_from(columns, self.gold, self.rule.gold, missing) if self.rule.gold else columns

    async def scored(self, batch: Batch) -> list[Score]:
        """The scores of a batch; `outcomes` has their reasons."""
        nothing = [None] * len(batch.completions)
        self.outcomes = [Outcome(None) for _ in nothing]
        parts = self._parts(batch)
        batch = replace(batch, columns=self.with_gold(batch.columns, nothing))
        try:
            for part, reply in await self._replies(batch, parts):
                self._take(batch, part, reply)
        except RewardError as error:  # a child cannot load it, or a row cannot be sent
            self._take(batch, range(len(nothing)), Reply("refused", told(error)))
        return [outcome.score for outcome in self.outcomes]

    def _parts(self, batch: Batch) -> list[Part]:
        """The rows of each call: those of its tasks, each alone or all together."""
        for name in (self.rule.gold, self.task_column if self.rule.tasks else None):
            if name and name not in batch.columns:
                fix = meant_by(name, batch.columns, NEAR) or f"the rows have {', '.join(batch.columns)}"
                say(
                    f"no row has the column {name!r} of the reward table, so it scores none [{SETTING}] "
                    f"-> {fix}"
                )
        tasks = batch.columns.get(self.task_column, [None] * len(batch.completions))
        rows = [row for row, task in enumerate(tasks) if self.rule.is_for(task)]
        if self.one_by_one or (self.pool is not None and not self.whole_batch):
            return [[row] for row in rows]
        return [rows] if rows else []

    def _arguments(self, batch: Batch, part: Part) -> dict[str, object]:
        """Arguments of the function for some rows, beside the completions."""
        names = batch.columns if self.reads is None else set(self.reads).intersection(batch.columns)
        columns = {name: [batch.columns[name][row] for row in part] for name in names}
        shared = batch.shared if self.reads is None else {}
        return {**columns, **{name: _light(value) if self.pool else value for name, value in shared.items()}}

    async def _replies(self, batch: Batch, parts: Sequence[Part]) -> Iterable[tuple[Part, Reply]]:
        """Each part with its reply, in any order; from processes as soon as there is one."""
        calls = [([batch.completions[row] for row in part], self._arguments(batch, part)) for part in parts]
        if self.pool is not None:
            return ((parts[number], reply) for number, reply in self.pool.answers(calls))
        replies = [answered(self.call, *call) for call in calls]
        if not self.awaited:
            return [(part, await reply) for part, reply in zip(parts, replies, strict=True)]
        if self.limit:
            replies = [within(self.limit, reply) for reply in replies]
        return zip(parts, await asyncio.gather(*replies), strict=True)

    def _take(self, batch: Batch, part: Part, reply: Reply) -> None:
        """Keep the outcomes of a part; count and report them."""
        report = report_of(self.name)
        if reply.ended == "skipped":
            say(f"reward {self.name!r}: completions are {reply.value}")
            outcomes = [Outcome(None, reply.value, failed=True)] * len(part)
        else:
            report.completions += len(part)
            outcomes = (
                [Outcome(*fields) for fields in reply.value]
                if reply.ended == "value"
                else [self._failed(report, reply, part, batch)] * len(part)
            )
        if gold := self.rule.gold:  # the reward names its own columns, not the table's
            own = f"column {' or '.join(self.gold)}"
            outcomes = [replace(each, reason=each.reason.replace(own, f"column {gold}")) for each in outcomes]
        for row, outcome in zip(part, outcomes, strict=True):
            self.outcomes[row] = outcome
            if reply.ended != "skipped":
                self._note(report, outcome, row, batch)

    def _failed(self, report: Report, reply: Reply, part: Part, batch: Batch) -> Outcome:
        """The outcome of a failed part: no score, or that of a timeout; it is counted and told of."""
        several = f"one of {len(part)} completions, the first is " if len(part) > 1 else ""
        place = several + row_in_words(part[0], batch.row(part[0]))
        failure = Failure(self.name, reply.ended, reply.value, place, reply.traceback)
        is_late = reply.ended == "timeout"
        report.timeouts += is_late
        score = self.on_timeout if is_late else None
        if score is None:
            report.fail(failure, len(part))
            announce(failure)
        return Outcome(score, reply.value, failed=score is None)

    def _note(self, report: Report, outcome: Outcome, row: int, batch: Batch) -> None:
        """Count an outcome; the first row of each kind that cannot be scored is named."""
        report.scored += outcome.score is not None
        if outcome.unread:
            report.unread += 1
            report.example = report.example or outcome.reason
        if outcome.score is None and outcome.reason and not outcome.failed:
            kind = re.sub(r"'[^']*'|\d+", "#", outcome.reason)[:160]
            report.unscored[kind] += 1
            if self.tells:
                where = row_in_words(row, batch.row(row))
                line = f"reward {self.name!r} does not score a row: {outcome.reason} [{where}]"
                say(line, about=f"{self.name} does not score: {kind}")


class AwaitedScored(Scored):
    """The same for a coroutine function; ms-swift awaits all of these together."""

    awaited = True

    async def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:  # type: ignore[override]
        """Score a batch."""
        return await self.scored(Batch.of(completions, columns))


def waits(function: object) -> bool:
    """True for a coroutine function, or an object that is called like one."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _light(value: object) -> object:
    """The trainer's state without its history, which grows and which no reward needs; the rest as it is."""
    if hasattr(value, "log_history"):
        value = copy.copy(value)
        value.log_history = []
    return value
