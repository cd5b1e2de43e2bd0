"""Around every reward function of a run: a fault in it is counted and told, and never hits one rank alone."""

from __future__ import annotations

import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.rewards.contract import Score
from swift_grpo_ext.rewards.runtime import replay
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.composition import Composition, Prepared
from swift_grpo_ext.rewards.runtime.ledger import Failure, FailureKind, ledger, row_in_words
from swift_grpo_ext.rewards.runtime.log_once import say
from swift_grpo_ext.rewards.runtime.threads import within
from swift_grpo_ext.rewards.scores import checked_scores


class Guard:
    """A reward function that always returns a list of the right length.

    What it raises is written to the ledger, and its completions are not scored; the trainer then decides with
    all ranks together whether to go on. `composition` holds the rules of a reward of the user's own,
    `infinite` counts infinite scores by name, `not_finite` are the places of NaN and infinite scores in the
    last batch.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        composition: Composition | None = None,
        output_dir: str | None = None,
        infinite: Counter[str] | None = None,
    ) -> None:
        self.function = function
        self.name = name
        self.composition = composition
        self._replay = replay.replay_file(output_dir)
        self._infinite = Counter() if infinite is None else infinite
        self._keeps_ledger = hasattr(function, "keeps_ledger")
        self.not_finite: tuple[int, ...] = ()

    def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:
        """Score a batch."""
        batch = Batch.of(completions, columns)
        started = time.perf_counter()
        try:
            prepared = self._prepared(batch)
            return self._finished(prepared, self._call(prepared.batch) if len(prepared.batch) else [])
        except Exception as error:
            return self._failed(batch, error)
        finally:
            self._book(len(batch), started)

    def _call(self, batch: Batch) -> Any:
        return self.function(batch.completions, **batch.columns, **batch.shared)

    def _prepared(self, batch: Batch) -> Prepared:
        if self.composition is None:
            return Prepared(batch, list(range(len(batch))), len(batch), [False] * len(batch))
        return self.composition.prepare(batch)

    def _finished(self, prepared: Prepared, output: object) -> list[Score]:
        scores = self._checked(output, len(prepared.batch))
        self.not_finite = tuple(prepared.indices[row] for row in self.not_finite)
        return scores if self.composition is None else self.composition.finish(prepared, scores)

    def _checked(self, output: object, completions: int) -> list[Score]:
        """What the function returned as scores: one for each completion, finite or None."""
        self.not_finite = ()
        found = checked_scores(output, completions, self.name)
        self.not_finite = found.not_finite
        if found.overflows:
            self._infinite[self.name] += found.overflows
            say(f"reward {self.name!r} gives infinite scores; such completions count as not scored")
        return [None if math.isnan(value) else value for value in found.values]

    def _book(self, completions: int, started: float) -> None:
        if not self._keeps_ledger:
            each = (time.perf_counter() - started) / max(1, completions)
            ledger(self.name).scored(completions, [each] * completions)

    def _failed(self, batch: Batch, error: Exception) -> list[Score]:
        self.not_finite = ()
        kind: FailureKind = "refused" if isinstance(error, SwiftGrpoExtError) else "error"
        if isinstance(error, TimeoutError):
            kind = "timeout"
            ledger(self.name).timed_out()
        where = f"one of {len(batch)} completions, the first is {row_in_words(0, batch.row(0))}"
        what = str(error).removeprefix("swift-grpo-ext: ") if kind == "refused" else repr(error)
        failure = Failure(self.name, kind, what, where, traceback.format_exc())
        ledger(self.name).failed(failure, len(batch))
        for index, completion in enumerate(batch.completions):
            replay.record(self._replay, failure, completion, batch.row(index))
        return [None] * len(batch)


class AsyncGuard(Guard):
    """The same for an async reward function, with a limit for the whole call.

    With a limit, the function runs in a thread with a loop of its own, so that one that blocks instead of
    awaiting runs into the limit too. Its thread cannot be ended: it is left behind.
    """

    def __init__(self, *args: Any, seconds: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seconds = seconds

    async def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:  # type: ignore[override]
        """Score a batch."""
        batch = Batch.of(completions, columns)
        started = time.perf_counter()
        try:
            prepared = self._prepared(batch)
            if self.seconds is None:
                return self._finished(prepared, await self._call(prepared.batch))
            waiting = within(self.seconds, lambda: self._call(prepared.batch))
            return self._finished(prepared, await waiting)
        except Exception as error:
            return self._failed(batch, error)
        finally:
            self._book(len(batch), started)


class PluginGuard:
    """The same for a reward model's plugin, which the host calls with rows."""

    def __init__(self, plugin: Callable[..., Any], name: str, infinite: Counter[str] | None = None) -> None:
        self.guard = Guard(plugin, name, infinite=infinite)
        self.plugin = plugin

    def __call__(self, inputs: Sequence[object], **columns: object) -> list[Score]:
        """Score a batch."""
        try:
            return self.guard._checked(self.plugin(inputs=inputs, **columns), len(inputs))
        except Exception as error:
            return self.guard._failed(Batch([""] * len(inputs), {}, {}), error)
