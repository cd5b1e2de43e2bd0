"""The one way through every reward function of a run, the catalogue's and a user's: `Scored`."""

import asyncio
import copy
import inspect
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import astuple, replace
from functools import cached_property, partial
from typing import Any

from swift_grpo_ext.errors import RewardError, SwiftGrpoExtError
from swift_grpo_ext.rewards.contract import Columns, Outcome, RewardFunction, Score, finished
from swift_grpo_ext.rewards.gold.columns import gold_from
from swift_grpo_ext.rewards.runtime.batch import INFINITE, NOT_A_NUMBER, Batch, outcomes_of
from swift_grpo_ext.rewards.runtime.ledger import (
    Failure,
    FailureKind,
    Report,
    announce,
    is_new,
    ledger,
    record_failure,
    replay_file,
    row_in_words,
    say,
)
from swift_grpo_ext.rewards.runtime.pool import Ended, Pool, Reply
from swift_grpo_ext.rewards.runtime.rules import SETTING, RewardRule
from swift_grpo_ext.settings import current_settings

GRACE = 1.0  # seconds that a coroutine has to end after it was cancelled
KILLS = 3  # completions of a batch that are killed before its others are not asked any more


async def within(seconds: float, start: Callable[[], Coroutine[object, object, object]]) -> Any:
    """The result of a coroutine in a daemon thread of its own, within so many seconds.

    At the limit one that awaits is cancelled, and one that blocks left behind `GRACE` later.

    Raises:
        TimeoutError: The time is over.
    """
    result: Future[Any] = Future()

    async def limited() -> object:
        return await asyncio.wait_for(start(), seconds)

    def run() -> None:
        result.set_running_or_notify_cancel()
        try:
            result.set_result(asyncio.run(limited()))
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True, name="reward").start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(result), seconds + GRACE)
    except asyncio.TimeoutError:
        raise TimeoutError(f"no scores within {seconds:g} s") from None


class WorkerCall:
    """A reward function as a worker runs it: with a part of a batch, to what JSON can carry."""

    def __init__(self, function: RewardFunction, name: str) -> None:
        self.function = function
        self.name = name

    def __call__(self, completions: list[str], arguments: dict[str, object]) -> list[tuple[object, ...]]:
        """The outcomes of some completions."""
        output = self.function(completions, **arguments)
        output = asyncio.run(output) if inspect.iscoroutine(output) else output
        return [astuple(outcome) for outcome in outcomes_of(output, len(completions), self.name)]

    def warm_up(self) -> None:
        """Import what the function imports at its first use, if it can say so."""
        if warm_up := getattr(self.function, "warm_up", None):
            warm_up()


class Scored:
    """A reward function that always returns a score or None for each completion, and never raises.

    What it raises, and what runs into its limit, goes to the ledger, from which all ranks decide together
    whether the run goes on.

    Args:
        function: As ms-swift calls it: a batch of completions and columns, to a list of scores; or a
            coroutine function.
        name: As it is logged.
        limit: Seconds for one completion, or for the batch of a function with ``whole_batch = True``. It then
            runs in processes that can be killed, or in a thread if it is a coroutine function.
        rule: What the reward table says about it.
        task_column: Names the column that routes rows.
        output_dir: Of the run: where failed completions are kept.

    Raises:
        RewardError: The limit is not above 0, or the function cannot be sent to a process.
    """

    reads: tuple[str, ...] | None = None  # the columns that it is given; None: all
    gold: tuple[str, ...] = ()  # columns that its gold may be in
    one_by_one = False  # each completion is scored alone, also without a limit
    tells = True  # it names the first row of each kind that it cannot score
    refuses = True  # an error of this package that it raises is a broken contract, which ends the run
    on_timeout: Score = None  # score of a completion that ran into the limit, where that is no fault
    kills: int | None = KILLS
    memory: int | None = None

    def __init__(
        self,
        function: RewardFunction,
        name: str,
        *,
        limit: float | None = None,
        rule: RewardRule | None = None,
        task_column: str = "task",
        output_dir: str | None = None,
        plugins: Sequence[str] = (),
    ) -> None:
        if limit is not None and not limit > 0:
            raise RewardError(f"a limit of {limit} s", where=name, fix="give seconds above 0")
        self.function = function
        self.name = name
        self.limit = limit
        self.waits = waits(function)
        self.rule = rule or RewardRule()
        self.task_column = task_column
        self.outcomes: list[Outcome] = []  # of the last batch
        self._plugins = plugins
        self._replay = replay_file(output_dir)
        self._book = ledger(name)

    def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:
        """Score a batch."""
        return finished(self.scored(Batch.of(completions, columns)))

    @cached_property
    def pool(self) -> Pool | None:
        """The processes that it runs in, if it has a limit and does not wait.

        Raises:
            RewardError: It cannot be sent to one.
        """
        if self.limit is None or self.waits:
            return None
        call = WorkerCall(self.function, self.name)
        return Pool(call, self.limit, plugins=self._plugins, kills=self.kills, memory=self.memory)

    @property
    def not_finite(self) -> tuple[int, ...]:
        """Places of NaN and infinite scores in the last batch."""
        reasons = [outcome.reason for outcome in self.outcomes]
        return tuple(row for row, reason in enumerate(reasons) if reason in (INFINITE, NOT_A_NUMBER))

    def with_gold(self, columns: Columns, missing: object = None) -> Columns:
        """Columns of a row or a batch in which the gold that the reward table names is its only one."""
        return gold_from(columns, self.gold, self.rule.gold, missing) if self.rule.gold else columns

    async def scored(self, batch: Batch) -> list[Score]:
        """The scores of a batch; `outcomes` has their reasons."""
        self.outcomes = [Outcome(None)] * len(batch)
        row_of = {place: row for row, place in enumerate(batch.places)}  # a batch may be part of another
        try:
            for part, answer in await self._answers(self._parts(batch)):
                outcomes = self._taken(part, answer)
                for place, outcome in zip(part.places, outcomes, strict=True):
                    self.outcomes[row_of[place]] = outcome
        except RewardError as error:  # a child that cannot load it, a row that cannot be sent
            self._failed(batch, Reply("refused", str(error).removeprefix("swift-grpo-ext: ")))
        return [outcome.score for outcome in self.outcomes]

    def _parts(self, batch: Batch) -> list[Batch]:
        """What it is called with: the rows of its tasks, each alone or all together."""
        for name in ([self.rule.gold] if self.rule.gold else []) + [self.task_column] * bool(self.rule.tasks):
            if name not in batch.columns:
                missing = f"no row has the column {name!r} of the reward table"
                say(f"{missing}, so none is scored by it [{SETTING}]")
        tasks = batch.columns.get(self.task_column, [None] * len(batch))
        rows = [row for row, task in enumerate(tasks) if self.rule.is_for(task)]
        whole = replace(batch, columns=self.with_gold(batch.columns, [None] * len(batch)))
        alone = self.one_by_one or (
            self.pool is not None and not getattr(self.function, "whole_batch", False)
        )
        if alone:
            return [whole.select([row]) for row in rows]
        return [whole.select(rows)] if rows else []

    def arguments(self, part: Batch) -> dict[str, object]:
        """What the function is given of a part, beside the completions."""
        if self.reads is not None:
            return {name: part.columns[name] for name in self.reads if name in part.columns}
        light = {name: _light(value) if self.pool else value for name, value in part.shared.items()}
        return {**part.columns, **light}

    async def _answers(self, parts: Sequence[Batch]) -> Iterable[tuple[Batch, Reply]]:
        """Each part with what became of it, in any order; from processes as soon as there is one."""
        if self.pool is not None:
            requests = [(list(part.completions), self.arguments(part)) for part in parts]
            return ((parts[number], answer) for number, answer in self.pool.answers(requests))
        if self.waits:
            return zip(parts, await asyncio.gather(*map(self._here, parts)), strict=True)
        return [(part, await self._here(part)) for part in parts]

    async def _here(self, part: Batch) -> Reply:
        """The answer of a part in this process."""
        started = time.perf_counter()
        call = partial(self.function, part.completions, **self.arguments(part))
        try:
            output = await within(self.limit, call) if self.waits and self.limit else call()
            output = await output if inspect.iscoroutine(output) else output
            outcomes = outcomes_of(output, len(part), self.name)
            return Reply("value", map(astuple, outcomes), time.perf_counter() - started)
        except Exception as error:
            refused = isinstance(error, SwiftGrpoExtError)
            why = str(error).removeprefix("swift-grpo-ext: ") if refused else repr(error)
            ended: Ended = "refused" if refused else "error"
            ended = "timeout" if isinstance(error, TimeoutError) else ended
            return Reply(ended, why, time.perf_counter() - started, traceback.format_exc())

    def _taken(self, part: Batch, answer: Reply) -> list[Outcome]:
        """The outcomes of a part, counted and told."""
        asked = len(part) if answer.ended != "skipped" else 0
        self._book.add(Report(completions=asked, seconds=[answer.seconds / len(part)] * asked))
        if answer.ended == "refused" and not self.refuses:
            answer = replace(answer, ended="error")
        if answer.ended != "value":
            return self._failed(part, answer)
        outcomes = [Outcome(*fields) for fields in answer.value]
        for index, outcome in enumerate(outcomes):
            self._note(part, index, outcome)
        return outcomes

    def _failed(self, part: Batch, answer: Reply) -> list[Outcome]:
        """No scores, or those of a time that is over; all of it goes to the replay file and the ledger."""
        if answer.ended == "skipped":
            say(f"reward {self.name!r}: completions are {answer.value}")
            return [Outcome(None, answer.value, failed=True)] * len(part)
        kind: FailureKind = answer.ended if answer.ended in ("timeout", "refused") else "error"
        is_fault = kind != "timeout" or self.on_timeout is None
        several = f"one of {len(part)} completions, the first is " if len(part) > 1 else ""
        place = several + row_in_words(part.places[0], part.row(0))
        failure = Failure(self.name, kind, answer.value, place, answer.traceback, str(self._replay or ""))
        report = Report(failures=len(part), first=failure) if is_fault else Report()
        report.timeouts = int(kind == "timeout")
        report.scored = 0 if is_fault else len(part)
        self._book.add(report)
        if is_fault:
            announce(failure)
        try:
            for index, completion in enumerate(part.completions):
                record_failure(self._replay, failure, completion, part.row(index))
        except OSError as error:
            say(f"failed completions are not kept in {self._replay}: {error}")
        score = None if is_fault else self.on_timeout
        return [Outcome(score, answer.value, failed=is_fault)] * len(part)

    def _note(self, part: Batch, index: int, outcome: Outcome) -> None:
        """Count an outcome; the first row of each kind that cannot be scored is named."""
        report = Report(scored=int(outcome.score is not None), unread=int(outcome.unread))
        report.example = outcome.reason if outcome.unread else ""
        if outcome.reason == INFINITE:
            report.counts = Counter(infinite=1)
            say(f"reward {self.name!r} gives infinite scores; such completions count as not scored")
        elif outcome.score is None and outcome.reason not in ("", NOT_A_NUMBER):
            kind = outcome.reason.split("'")[0][:80]
            report.unscored = Counter([kind])
            if self.tells and is_new(f"{self.name} does not score: {kind}"):
                say(self._unscored(part, index, outcome.reason))
        self._book.add(report)

    def _unscored(self, part: Batch, index: int, reason: str) -> str:
        """The line that names a row which cannot be scored."""
        row = row_in_words(part.places[index], part.row(index))
        return f"reward {self.name!r} does not score a row: {reason} [{row}]"


class AwaitedScored(Scored):
    """The same for a coroutine function; ms-swift awaits all of these together."""

    async def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:  # type: ignore[override]
        """Score a batch."""
        return await self.scored(Batch.of(completions, columns))


class ScoredPlugin(Scored):
    """The same for a reward model's plugin, which ms-swift calls with rows."""

    def __init__(self, plugin: RewardFunction, name: str, **options: Any) -> None:
        super().__init__(lambda completions, **columns: plugin(**columns), name, **options)

    def __call__(self, inputs: Sequence[object], **columns: object) -> list[Score]:  # type: ignore[override]
        """Score a batch."""
        return super().__call__([""] * len(inputs), inputs=inputs, **columns)


class Limited(Scored):
    """The same in processes, which start at once; a coroutine function, too."""

    def __init__(self, function: RewardFunction, name: str, **options: Any) -> None:
        # Its plugin files; none in an ms-swift that keeps no record of them, or without ms-swift.
        plugins: list[str] = getattr(sys.modules.get("swift.utils"), "get_external_files", list)()
        super().__init__(function, name, plugins=plugins, **options)
        self.waits = False
        if self.pool is not None:
            self.pool.warm_up()


def waits(function: object) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _light(value: object) -> object:
    """The trainer's state without its history, which grows and which no reward needs; the rest as it is."""
    if hasattr(value, "log_history"):
        value = copy.copy(value)
        value.log_history = []
    return value


def limited(reward: type | RewardFunction, seconds: float | None = None) -> object:
    """Give a reward of your own a hard limit: ``orms["mine"] = limited(MyReward, seconds=5)``.

    It gets one completion at a time in a process without a GPU, or the batch if it has an attribute
    ``whole_batch = True``. It is pickled: its class must be importable.

    Args:
        reward: A class as ms-swift registers it, or a reward function.
        seconds: For one completion; by default ``SWIFT_GRPO_EXT_REWARD_TIMEOUT``, else 10.

    Returns:
        A class of the same name, or a callable, to be used in its place.

    Raises:
        RewardError: It cannot be sent to a process, or the seconds are not above 0.
    """
    limit = current_settings().reward_timeout or 10.0 if seconds is None else seconds
    if not isinstance(reward, type):
        return Limited(reward, getattr(reward, "__name__", type(reward).__name__), limit=limit)

    def start(self: Limited, args: object = None, **kwargs: object) -> None:
        output_dir = getattr(args, "output_dir", None)
        Limited.__init__(
            self, reward(args=args, **kwargs), reward.__name__, limit=limit, output_dir=output_dir
        )

    return type(reward.__name__, (Limited,), {"__init__": start, "__doc__": reward.__doc__})
