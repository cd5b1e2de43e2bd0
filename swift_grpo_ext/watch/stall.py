"""A watchdog thread per rank reports a stalled phase; ranks share files, since collectives may hang."""

import faulthandler
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from pydantic import TypeAdapter

from swift_grpo_ext.folders import write_whole
from swift_grpo_ext.watch.journal import Journal, read_events
from swift_grpo_ext.watch.phases import Now, Phases

FIRST_LIMIT = 1800.0
LEAST_LIMIT = 120.0
HELD_LIMIT = 60.0  # seconds in which the watchdog, which looks every 5 s, could not run
TIMES_LONGEST = 5.0
EXIT_CODE = os.EX_TEMPFAIL  # of a run that was ended for a stall: worth a retry
# Frames of these files are skipped when looking for the caller of a collective.
_MACHINERY = ("/torch/", "/accelerate/", "/contextlib.py", "/functools.py")
_WAITING = "waiting for the other ranks"


@dataclass(frozen=True)
class Beat:
    """One rank's last heartbeat; times are wall-clock, in seconds since 1970."""

    rank: int
    phase: str  # see `phases.PHASES`
    since: float  # start of the phase
    beat: float  # time of this heartbeat
    where: str  # place of the main thread in the code
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)


_BEAT = TypeAdapter(Beat)


def write_beat(folder: Path, beat: Beat) -> None:
    """Replace the rank's file; a reader sees the old or the new one, never a partial one."""
    write_whole(folder / f"rank_{beat.rank}.json", _BEAT.dump_json(beat))


def read_beats(folder: Path, ranks: int, not_before: float = 0.0) -> dict[int, Beat]:
    """The last heartbeat of each rank that has one; those older than ``not_before`` are of an earlier run."""
    beats = {}
    for rank in range(ranks):
        with suppress(OSError, ValueError):  # no file yet, or written by something else
            beat = _BEAT.validate_json((folder / f"rank_{rank}.json").read_bytes())
            if beat.beat >= not_before:
                beats[rank] = beat
    return beats


def in_words(beat: Beat, now: float) -> str:
    """One rank's state as a clause; ``now`` is wall-clock time."""
    silent = now - beat.beat
    if silent > 60:
        return f"rank {beat.rank} (pid {beat.pid} on {beat.host}) gave no sign of life for {silent:.0f} s"
    return f"rank {beat.rank} in {beat.phase} for {now - beat.since:.0f} s, {beat.where}"


def holders(beats: Mapping[int, Beat]) -> list[int]:
    """Ranks that do not wait for others while some do: these hold up the rest."""
    waiting = {rank for rank, beat in beats.items() if beat.where.startswith(_WAITING)}
    return sorted(set(beats) - waiting) if waiting else []


def where_main_thread_stands() -> str:
    """File, line and function; while waiting for the other ranks, the collective and its caller."""
    innermost = frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if innermost is None:
        return "ended"
    collective = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if "/torch/distributed/" in file:
            collective = frame.f_code.co_name.replace("wrapper", "a collective")
        elif collective and not any(part in file for part in _MACHINERY):
            return f"{_WAITING} in {collective}, called from {_place(frame)}"
        frame = frame.f_back
    return f"{_WAITING} in {collective}" if collective else f"at {_place(innermost)}"


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


def limit_of(phase: str, longest: dict[str, float], fixed: float | None) -> float:
    """Seconds that a phase may last: a fixed limit, else learned from its longest stretch so far."""
    if fixed is not None:
        return fixed
    return max(LEAST_LIMIT, TIMES_LONGEST * longest[phase]) if phase in longest else FIRST_LIMIT


@dataclass(eq=False)
class Watchdog(threading.Thread):
    """Watches one rank, and reports a stalled phase that no other rank has reported yet."""

    phases: Phases
    journal: Journal
    ranks: int
    fixed_limit: float | None = None  # seconds for every phase; learned if None
    step: Callable[[], int] = lambda: 0  # returns the number of optimizer steps taken
    also: Callable[[], None] = lambda: None  # called at every look
    abort: Callable[[], None] | None = None  # called where a stall is to end the run
    failed: Callable[[Exception], None] = lambda error: None  # called with the error that ended this thread

    def __post_init__(self) -> None:
        super().__init__(name="swift-grpo-ext watchdog", daemon=True)
        self._interval = min(5.0, (self.fixed_limit or FIRST_LIMIT) / 4)
        self._started_at = time.time()
        self._done = threading.Event()
        self._seen: Now | None = None  # the phase that last exceeded its limit

    def run(self) -> None:
        """Beat until `stop`. A crash in C code is reported with the Python line that called it."""
        faulthandler.enable(file=2)
        try:
            while not self._done.wait(self._interval):
                # A C thread dumps the stacks if something holds the GIL so long that this thread cannot run.
                faulthandler.dump_traceback_later(HELD_LIMIT, file=2)
                self.beat()
        except Exception as error:
            self.failed(error)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def stop(self) -> None:
        """End the thread; it does not outlive the training."""
        self._done.set()
        self.join(timeout=5)  # it may hang in a write; it is a daemon

    def beat(self) -> None:
        """Look once: write a heartbeat; over the limit write the stacks, and report unless a rank has."""
        self.also()
        now = self.phases.now
        passed = time.monotonic() - now.since
        beat_at = time.time()
        since = beat_at - passed
        beat = Beat(self.journal.rank, now.phase, since, beat_at, where_main_thread_stands())
        self.journal.write(lambda: write_beat(self.journal.folder, beat))
        limit = limit_of(now.phase, self.phases.longest, self.fixed_limit)
        if passed <= limit or self._seen == now:
            return
        self._seen = now
        stacks = self.journal.folder / f"stall_rank_{self.journal.rank}.txt"
        self.journal.write(lambda: write_stacks(stacks))
        if not any(stall["time"] > since for stall in read_events(self.journal.folder.parent, ("stall",))):
            beats = read_beats(self.journal.folder, self.ranks, self._started_at)
            text = describe_stall(now.phase, passed, limit, beats, self.ranks, beat_at)
            self.journal.add("stall", step=self.step(), text=text, phase=now.phase, stacks=str(stacks))
            print(f"swift-grpo-ext [stall] {text}; stacks: {stacks.parent}", file=sys.stderr, flush=True)
        if self.abort is not None:
            self._done.wait(2 * self._interval)  # until the ranks that wait for this one have said so, too
            self.abort()


def write_stacks(path: Path) -> None:
    """Write the stacks of all threads of this process."""
    with open(path, "wb") as file:
        faulthandler.dump_traceback(file)


def describe_stall(
    phase: str, passed: float, limit: float, beats: dict[int, Beat], ranks: int, now: float
) -> str:
    """States of the ranks, and those that hold up the others, as seen by the rank that noticed the stall."""
    states = "; ".join(in_words(beats[rank], now) for rank in sorted(beats))
    missing = sorted(set(range(ranks)).difference(beats))
    text = f"phase {phase} has lasted {passed:.0f} s, the limit is {limit:.0f} s: {states}"
    if missing:
        text += f"; no sign of life from rank {', '.join(map(str, missing))}"
    if blamed := holders(beats):
        text += f"; the others wait for rank {', '.join(map(str, blamed))}"
    elif len(places := {beat.where for beat in beats.values()}) > 1 and all(
        place.startswith(_WAITING) for place in places
    ):
        text += "; they wait in different places, so each waits for a collective that another never enters"
    return text
