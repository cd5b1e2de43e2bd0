"""What a rank is doing now, and where its time went."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PHASES = (
    "data",
    "rollout",
    "weight_sync",
    "reward",
    "logps",
    "forward",
    "backward",
    "optimizer",
    "save",
    "evaluate",
    "log",
    "start",
    "between",
)


@dataclass(frozen=True)
class Now:
    """The phase of this moment.

    Attributes:
        phase: Name from `PHASES`.
        since: When it was entered or come back to, on the clock of `Phases`, in seconds.
    """

    phase: str
    since: float


class Phases:
    """A stack of phases: an inner one's time does not count for the outer one.

    One thread enters and leaves; others may read `now` and `longest` at any time.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._names = ["start"]
        self._seconds: dict[str, float] = {}
        self.longest: dict[str, float] = {}
        self.failed_in = ""  # the innermost phase that an error came out of
        self.now = Now("start", clock())

    @contextmanager
    def within(self, phase: str) -> Iterator[None]:
        """Be in a phase for the length of a block."""
        self._names.append(phase)
        self._turn()
        try:
            yield
        except BaseException:
            self.failed_in = self.failed_in or phase
            raise
        finally:
            self._names.pop()
            self._turn()

    def rest_in(self, phase: str) -> None:
        """The phase that a rank is in outside of every block."""
        self._names[0] = phase
        self._turn()

    def drain(self) -> dict[str, float]:
        """Seconds spent in each phase since the last call."""
        self._turn()
        seconds, self._seconds = self._seconds, {}
        return seconds

    def _turn(self) -> None:
        """Book the time since the last turn, and go on in the phase on top of the stack."""
        time_now = self._clock()
        phase, passed = self.now.phase, time_now - self.now.since
        self._seconds[phase] = self._seconds.get(phase, 0.0) + passed
        self.longest[phase] = max(self.longest.get(phase, 0.0), passed)
        self.now = Now(self._names[-1], time_now)
