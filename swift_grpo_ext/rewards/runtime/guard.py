"""Around every reward function of a run: a fault in it is counted and told, and never hits one rank alone."""

from __future__ import annotations

import asyncio
import math
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.rewards.contract import RewardFunction, Score
from swift_grpo_ext.rewards.runtime.batch import Batch, Composition, Prepared, checked_scores
from swift_grpo_ext.rewards.runtime.ledger import Failure, FailureKind, ledger, replay_file, row_in_words, say

GRACE = 1.0  # seconds that a coroutine has to end after it was cancelled


async def within(seconds: float, start: Callable[[], Coroutine[object, object, object]]) -> Any:
    """The result of a coroutine in a daemon thread of its own, within so many seconds.

    At the limit one that awaits is cancelled, and one that blocks left behind `GRACE` later.
    """
    found: Future[Any] = Future()

    async def limited() -> object:
        return await asyncio.wait_for(start(), seconds)

    def run() -> None:
        found.set_running_or_notify_cancel()
        try:
            found.set_result(asyncio.run(limited()))
        except Exception as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True, name="reward").start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(found), seconds + GRACE)
    except asyncio.TimeoutError:
        raise TimeoutError(f"no scores within {seconds:g} s") from None


class Guard:
    """A reward function that always returns a list of the right length; what it raises goes to the ledger.

    `composition` has a reward of the user's own, `infinite` counts infinite scores by name, and `not_finite`
    are the places of NaN and infinite scores in the last batch.
    """

    def __init__(
        self,
        function: RewardFunction,
        name: str,
        composition: Composition | None = None,
        output_dir: str | None = None,
        infinite: Counter[str] | None = None,
    ) -> None:
        self.function = function
        self.name = name
        self.composition = composition or Composition()
        self._replay = replay_file(output_dir)
        self._infinite = Counter() if infinite is None else infinite
        self._keeps_ledger = hasattr(function, "keeps_ledger")
        self.not_finite: tuple[int, ...] = ()

    def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:
        """Score a batch."""
        batch = Batch.of(completions, columns)
        with self._settling(batch) as scores:
            prepared = self.composition.prepare(batch)
            scores[:] = self._finished(prepared, self._call(prepared.batch) if len(prepared.batch) else [])
        return scores

    def _call(self, batch: Batch) -> Any:
        return self.function(batch.completions, **batch.columns, **batch.shared)

    @contextmanager
    def _settling(self, batch: Batch) -> Iterator[list[Score]]:
        """Scores to be filled in; all stay None if that raises."""
        scores: list[Score] = [None] * len(batch)
        started = time.perf_counter()
        try:
            yield scores
        except Exception as error:
            self._failed(batch, error)
        finally:
            if not self._keeps_ledger:
                each = (time.perf_counter() - started) / max(1, len(batch))
                ledger(self.name).scored(len(batch), [each] * len(batch))

    def _finished(self, prepared: Prepared, output: object) -> list[Score]:
        scores = self._checked(output, len(prepared.batch))
        self.not_finite = tuple(prepared.indices[row] for row in self.not_finite)
        return self.composition.finish(prepared, scores)

    def _checked(self, output: object, completions: int) -> list[Score]:
        """What the function returned as scores: one for each completion, finite or None."""
        self.not_finite = ()
        found = checked_scores(output, completions, self.name)
        self.not_finite = found.not_finite
        if found.overflows:
            self._infinite[self.name] += found.overflows
            say(f"reward {self.name!r} gives infinite scores; such completions count as not scored")
        return [None if math.isnan(value) else value for value in found.values]

    def _failed(self, batch: Batch, error: Exception) -> None:
        self.not_finite = ()
        kind: FailureKind = "refused" if isinstance(error, SwiftGrpoExtError) else "error"
        kind = "timeout" if isinstance(error, TimeoutError) else kind
        where = f"one of {len(batch)} completions, the first is {row_in_words(0, batch.row(0))}"
        what = str(error).removeprefix("swift-grpo-ext: ") if kind == "refused" else repr(error)
        batch.failed(Failure(self.name, kind, what, where, traceback.format_exc()), self._replay)


class AsyncGuard(Guard):
    """The same for an async function; with a limit in a thread, for one that blocks does not await."""

    def __init__(self, *args: Any, seconds: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seconds = seconds

    async def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:  # type: ignore[override]
        """Score a batch."""
        batch = Batch.of(completions, columns)
        with self._settling(batch) as scores:
            prepared = self.composition.prepare(batch)
            if self.seconds is None:
                output = await self._call(prepared.batch)
            else:
                output = await within(self.seconds, lambda: self._call(prepared.batch))
            scores[:] = self._finished(prepared, output)
        return scores


class PluginGuard:
    """The same for a reward model's plugin, which ms-swift calls with rows."""

    def __init__(self, plugin: RewardFunction, name: str, infinite: Counter[str] | None = None) -> None:
        self.guard = Guard(plugin, name, infinite=infinite)

    def __call__(self, inputs: Sequence[object], **columns: object) -> list[Score]:
        """Score a batch."""
        try:
            return self.guard._checked(self.guard.function(inputs=inputs, **columns), len(inputs))
        except Exception as error:
            self.guard._failed(Batch([""] * len(inputs), {}, {}), error)
            return [None] * len(inputs)
