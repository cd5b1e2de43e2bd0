"""Around every reward function of a run: a hard limit, and faults that never hit one rank alone."""

import asyncio
import copy
import pickle
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from swift_grpo_ext.errors import RewardError, SwiftGrpoExtError
from swift_grpo_ext.rewards.contract import Outcome, RewardFunction, Score, finished
from swift_grpo_ext.rewards.runtime.batch import INFINITE, Batch, Composition, outcomes_of
from swift_grpo_ext.rewards.runtime.ledger import (
    FailureKind,
    Report,
    ledger,
    replay_file,
    say,
)
from swift_grpo_ext.rewards.runtime.pool import Pool
from swift_grpo_ext.rewards.runtime.runner import worker_count
from swift_grpo_ext.rewards.runtime.worker import PickledJob
from swift_grpo_ext.settings import current_settings

GRACE = 1.0  # seconds that a coroutine has to end after it was cancelled


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


class Guard:
    """A reward function that always returns a list of the right length; what it raises goes to the ledger."""

    def __init__(
        self,
        function: RewardFunction,
        name: str,
        composition: Composition | None = None,
        output_dir: str | None = None,
    ) -> None:
        self.function = function
        self.name = name
        self.composition = composition or Composition()  # of a reward of the user's own
        self._replay = replay_file(output_dir)
        self._keeps_ledger = hasattr(function, "keeps_ledger")
        self.not_finite: tuple[int, ...] = ()  # places of NaN and infinite scores in the last batch

    def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:
        """Score a batch."""
        return finished(self._guarded(Batch.of(completions, columns)))

    async def _guarded(self, batch: Batch) -> list[Score]:
        self.not_finite = ()
        started = time.perf_counter()
        try:
            outcomes = await self.composition.scored(batch, self._scored)
        except Exception as error:
            self._failed(batch, error)
            return [None] * len(batch)
        finally:
            if not self._keeps_ledger:
                seconds = (time.perf_counter() - started) / max(1, len(batch))
                ledger(self.name).add(Report(completions=len(batch), seconds=[seconds] * len(batch)))
        self.not_finite = tuple(row for row, outcome in enumerate(outcomes) if outcome.reason)
        return [outcome.score for outcome in outcomes]

    async def _scored(self, batch: Batch) -> list[Outcome]:
        """What the function returns: finite scores, or None, with a reason where it gave another number."""
        outcomes = outcomes_of(await self._output(batch), len(batch), self.name)
        infinite = sum(outcome.reason == INFINITE for outcome in outcomes)
        ledger(self.name).add(Report(counts=Counter(infinite=infinite)))
        if infinite:
            say(f"reward {self.name!r} gives infinite scores; such completions count as not scored")
        return outcomes

    async def _output(self, batch: Batch) -> Any:
        return self.function(batch.completions, **batch.columns, **batch.shared)

    def _failed(self, batch: Batch, error: Exception) -> None:
        kind: FailureKind = "refused" if isinstance(error, SwiftGrpoExtError) else "error"
        kind = "timeout" if isinstance(error, TimeoutError) else kind
        what = str(error).removeprefix("swift-grpo-ext: ") if kind == "refused" else repr(error)
        batch.failed(self.name, kind, what, traceback.format_exc(), self._replay)


class AsyncGuard(Guard):
    """The same for an async function; with a limit in a thread, for one that blocks does not await."""

    def __init__(self, *args: Any, seconds: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seconds = seconds

    async def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:  # type: ignore[override]
        """Score a batch."""
        return await self._guarded(Batch.of(completions, columns))

    async def _output(self, batch: Batch) -> Any:
        call = partial(self.function, batch.completions, **batch.columns, **batch.shared)
        return await (call() if self.seconds is None else within(self.seconds, call))


class PluginGuard:
    """The same for a reward model's plugin, which ms-swift calls with rows."""

    def __init__(self, plugin: RewardFunction, name: str) -> None:
        self.guard = Guard(lambda completions, **columns: plugin(**columns), name)

    def __call__(self, inputs: Sequence[object], **columns: object) -> list[Score]:
        """Score a batch."""
        return self.guard([""] * len(inputs), inputs=inputs, **columns)


class Limited:
    """A reward function whose every completion is scored within a number of seconds, or not at all.

    It gets one completion at a time in a child process without a GPU, or the batch if it has an attribute
    ``whole_batch = True``. It is pickled: its class must be importable. A RewardError if it cannot be.
    """

    keeps_ledger = True

    def __init__(self, function: RewardFunction, seconds: float, name: str) -> None:
        self.name = name
        if not seconds > 0:
            raise RewardError(f"a limit of {seconds} s", where=name, fix="give seconds above 0")
        self.whole_batch = bool(getattr(function, "whole_batch", False))
        try:
            # Its plugin files; none in an ms-swift that keeps no record of them, or without ms-swift.
            plugins: list[str] = getattr(sys.modules.get("swift.utils"), "get_external_files", list)()
            job = PickledJob(pickle.dumps(function), tuple(plugins))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            fix = "define its class at the top of a module or plugin file, under the name it keeps"
            raise RewardError(f"cannot be sent to a child process: {error}", where=name, fix=fix) from None
        self.pool = Pool(job, worker_count(), seconds)
        self.pool.warm_up()
        arguments = getattr(function, "args", None)
        self._replay = replay_file(getattr(arguments, "output_dir", None))

    def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:
        """Score a batch; None for a completion without a score."""
        batch = Batch.of(completions, {name: _light(value) for name, value in columns.items()})
        parts = [batch] if self.whole_batch else [batch.select([row]) for row in range(len(batch))]
        requests = [(list(part.completions), {**part.columns, **part.shared}) for part in parts]
        answers = self.pool.map(requests, give_up_after=current_settings().reward_failures)
        ledger(self.name).add(Report(completions=len(batch), seconds=[answer.seconds for answer in answers]))
        scores: list[Score] = []
        for part, answer in zip(parts, answers, strict=True):
            if answer.ended == "value":
                # One surplus score and one missing elsewhere would give all between to the wrong completions.
                outcomes_of(answer.value, len(part), self.name)
                scores += answer.value
            else:
                kind: FailureKind = "timeout" if answer.ended == "timeout" else "error"
                replay = None if answer.ended == "skipped" else self._replay
                part.failed(self.name, kind, answer.reason, answer.traceback, replay)
                scores += [None] * len(part)
        return scores


def limited(reward: type | RewardFunction, seconds: float | None = None) -> object:
    """Give a reward of your own a hard limit: ``orms["mine"] = limited(MyReward, seconds=5)``.

    Args:
        reward: A class as ms-swift registers it, or a reward function.
        seconds: For one completion; by default ``SWIFT_GRPO_EXT_REWARD_TIMEOUT``, else 10.

    Returns:
        A class of the same name, or a callable, to be used in its place.
    """
    limit = seconds or current_settings().reward_timeout or 10.0
    if not isinstance(reward, type):
        return Limited(reward, limit, getattr(reward, "__name__", type(reward).__name__))

    def start(self: Limited, args: object = None, **kwargs: object) -> None:
        Limited.__init__(self, reward(args=args, **kwargs), limit, reward.__name__)

    return type(reward.__name__, (Limited,), {"__init__": start, "__doc__": reward.__doc__})


def _light(value: object) -> object:
    """The trainer's state without its history, which grows and which no reward needs; the rest as it is."""
    if hasattr(value, "log_history"):
        value = copy.copy(value)
        value.log_history = []
    return value
