"""Monitoring must neither end a run nor slow it down: a part that fails or takes long is turned off."""

import functools
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch
from accelerate.utils import gather_object
from swift.utils import get_logger

from swift_grpo_ext.errors import in_a_line

SECONDS = 5.0  # total time that a part may take, plus `SHARE` of the run's
SHARE = 0.1
PARTS: dict[str, str] = {}  # name of each guarded part: the methods behind it, for tests

Call = ParamSpec("Call")
Result = TypeVar("Result")


class Guarded(Protocol):
    """An object that has a guard."""

    @property
    def guard(self) -> "Guard":
        """The run's guard."""


class Guard:
    """Runs one rank's monitoring. A part that raises or takes too long is off for the rest of the run.

    Exceptions that are not errors (Ctrl-C) pass through.
    """

    def __init__(self, rank: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._rank = rank
        self._clock = clock
        self._started = clock()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._why_off: dict[str, str] = {}

    def is_on(self, part: str) -> bool:
        """True while the part is on."""
        return part not in self._why_off

    def run(self, part: str, action: Callable[[], Result], *, reads_device: bool = False) -> Result | None:
        """Result of the action; None where the part is off or fails.

        An action that reads tensors (``reads_device``) waits for the pending work of the GPU: that time is
        not charged to the part.
        """
        return self._attempt(part, action, reads_device)[0]

    def together(self, part: str, action: Callable[[], Result]) -> Result | None:
        """The same for a part in which ranks wait for each other: it is turned off on all ranks together.

        Every rank must call this; the action itself must not wait for other ranks.
        """
        if not self.is_on(part):
            return None
        result, error = self._attempt(part, action, reads_device=True)
        of_ranks = gather_object([(self._why_off.get(part, ""), error is not None)])
        for rank, (why, _) in enumerate(of_ranks):
            if why:
                self.turn_off(part, f"rank {rank}: {why}")
        # A slow action still has a result on all ranks: the last one of this part.
        return None if any(failed for _, failed in of_ranks) else result

    def _attempt(
        self, part: str, action: Callable[[], Result], reads_device: bool
    ) -> tuple[Result | None, Exception | None]:
        if not self.is_on(part):
            return None, None
        if reads_device and torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        start = self._clock()
        try:
            result = action()
        except Exception as error:
            self.turn_off(part, error)
            return None, error
        now = self._clock()
        self._seconds[part] += now - start
        spent = self._seconds[part]
        whole = now - self._started
        if spent > SECONDS + SHARE * whole:
            self.turn_off(part, f"it took {spent:.0f} s of the first {whole:.0f} s")
        return result, None

    def turn_off(self, part: str, reason: Exception | str) -> None:
        """Turn a part off; each rank says so itself: ms-swift's logger is silent on all but the first."""
        if not self.is_on(part):
            return
        why = reason if isinstance(reason, str) else _in_words(reason)
        self._why_off[part] = why
        text = f"swift-grpo-ext: {part} turned off, training is not affected: {why}"
        if self._rank == 0:
            get_logger().warning(text)
        else:
            print(f"{text} (rank {self._rank})", file=sys.stderr, flush=True)


Owner = TypeVar("Owner", bound=Guarded)
Method = Callable[Concatenate[Owner, Call], Result]


def watches(
    part: str, *, reads_device: bool = False
) -> Callable[[Method[Owner, Call, Result]], Method[Owner, Call, Result | None]]:
    """Run a method under the `Guard` of its object: it returns None where its part is off or fails."""

    def guarding(method: Method[Owner, Call, Result]) -> Method[Owner, Call, Result | None]:
        PARTS[part] = f"{PARTS.get(part, '')} {method.__qualname__}".strip()

        @functools.wraps(method)
        def guarded(owner: Owner, *args: Call.args, **kwargs: Call.kwargs) -> Result | None:
            action = functools.partial(method, owner, *args, **kwargs)
            return owner.guard.run(part, action, reads_device=reads_device)

        return guarded

    return guarding


def _in_words(error: Exception) -> str:
    """An error in one line, with its place in the code."""
    places = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""
    return in_a_line(error) + where
