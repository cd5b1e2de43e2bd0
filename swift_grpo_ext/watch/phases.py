"""What a rank is doing now, and where its time went."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

PHASES = {
    "data": "data",
    "prepare": "preparation of rows and images",
    "weight_sync": "weight sync",
    "encode": "encoding for the engine",
    "rollout": "rollout",
    "vision": "vision tower",
    "reward": "rewards",
    "old": "old log-probs",
    "reference": "reference log-probs",
    "logps": "other log-probs",
    "check": "engine check",
    "forward": "policy forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "save": "saving",
    "evaluate": "evaluation",
    "log": "logging",
    "start": "start",
    "between": "between steps",
}
"""What a rank does, in the order of a step, and what to call it."""


@dataclass(frozen=True)
class Now:
    """The phase of this moment.

    Attributes:
        phase: Name from `PHASES`.
        since: When it was entered or come back to, on the clock of `Phases`, in seconds.
    """

    phase: str
    since: float


def recorded_event() -> object:
    """An event at this place of the GPU's work; None without a GPU in use."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class Phases:
    """A stack of phases: an inner one's time does not count for the outer one.

    One thread enters and leaves; others may read `now` and `longest` at any time. A GPU works behind the
    process that drives it, so where there is one, `drain` tells its time and not that of the process.

    Args:
        clock: Seconds that only grow.
        mark: Makes an event of the GPU's stream, recorded; None where there is none.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, mark: Callable[[], Any] = recorded_event
    ) -> None:
        self._clock, self._mark = clock, mark
        self._names = ["start"]
        self._seconds: dict[str, float] = {}
        self._marks: list[tuple[str, Any]] = []  # what ended, and the event
        self._moved: list[tuple[str, str, float]] = []
        self.longest: dict[str, float] = {}
        self.failed_in = ""  # the innermost phase that an error came out of
        self.now = Now("start", clock())

    @contextmanager
    def within(self, phase: str) -> Iterator[None]:
        """Be in a phase for the length of a block."""
        self.enter(phase)
        try:
            yield
        except BaseException:
            self.failed_in = self.failed_in or phase
            raise
        finally:
            self.leave(phase)

    def enter(self, phase: str) -> None:
        """Begin a phase inside the current one."""
        self._names.append(phase)
        self._turn()

    def leave(self, phase: str) -> None:
        """End the current phase, if it is this one."""
        if self._names[-1] == phase and len(self._names) > 1:
            self._names.pop()
            self._turn()

    def rest_in(self, phase: str) -> None:
        """The phase that a rank is in outside of every block."""
        self._names[0] = phase
        self._turn()

    def move(self, phase: str, to: str, seconds: float) -> None:
        """Book seconds of one phase under another: what a server says that it did meanwhile."""
        self._moved.append((phase, to, seconds))

    def drain(self) -> dict[str, float]:
        """Seconds spent in each phase since the last call."""
        self._turn()
        marks, self._marks = self._marks, self._marks[-1:]
        seconds, self._seconds = self._seconds, {}
        if len(marks) > 1 and all(event is not None for _, event in marks):
            marks[-1][1].synchronize()
            seconds = {}
            for (_, before), (phase, event) in pairwise(marks):
                seconds[phase] = seconds.get(phase, 0.0) + before.elapsed_time(event) / 1000
        for phase, to, moved in self._moved:
            moved = min(moved, seconds.get(phase, 0.0))
            seconds[phase] = seconds.get(phase, 0.0) - moved
            seconds[to] = seconds.get(to, 0.0) + moved
        self._moved.clear()
        return seconds

    def _turn(self) -> None:
        """Book the time since the last turn, and go on in the phase on top of the stack."""
        time_now = self._clock()
        phase, passed = self.now.phase, time_now - self.now.since
        self._seconds[phase] = self._seconds.get(phase, 0.0) + passed
        self._marks.append((phase, self._mark()))
        self.longest[phase] = max(self.longest.get(phase, 0.0), passed)
        self.now = Now(self._names[-1], time_now)
