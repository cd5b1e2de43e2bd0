"""A thread per rank that notices when a phase lasts too long, and says which rank is where since when.

The ranks find each other through files in ``watch/``, because the usual way, a collective, is what hangs.
The rank that notices first opens an incident; every rank then writes the stacks of its threads.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from swift_grpo_ext.watch import heartbeat
from swift_grpo_ext.watch.heartbeat import Beat
from swift_grpo_ext.watch.journal import Journal
from swift_grpo_ext.watch.phases import Now, Phases

EXIT_CODE = os.EX_TEMPFAIL  # of a run that was ended for a stall: worth another try
FIRST_LIMIT = 1800.0
LEAST_LIMIT = 120.0
TIMES_LONGEST = 5.0


def limit_of(phase: str, longest: dict[str, float], fixed: float | None) -> float:
    """Seconds that a phase may last: a fixed limit, else learned from the longest stretch of each so far."""
    if fixed is not None:
        return fixed
    return max(LEAST_LIMIT, TIMES_LONGEST * longest[phase]) if phase in longest else FIRST_LIMIT


class Watchdog(threading.Thread):
    """Watches one rank, and joins the incidents that others open."""

    def __init__(
        self,
        phases: Phases,
        journal: Journal,
        ranks: int,
        *,
        fixed_limit: float | None = None,  # seconds for every phase; learned if None
        step: Callable[[], int] = lambda: 0,  # gives the optimizer steps taken
        also: Callable[[], None] = lambda: None,  # called at every look
        abort: Callable[[], None] | None = None,  # on every rank, for an incident that is to end the run
    ) -> None:
        super().__init__(name="swift-grpo-ext watchdog", daemon=True)
        self._phases, self._journal, self._ranks = phases, journal, ranks
        self._fixed, self._step, self._also, self._abort = fixed_limit, step, also, abort
        self._interval = 5.0 if fixed_limit is None else min(5.0, fixed_limit / 4)
        self._started_at = time.time()
        self._done = threading.Event()
        self._told: Now | None = None
        # Incidents of an earlier run in the same folder are over.
        self._incident = len(list(journal.folder.glob("stall_*.json")))

    def run(self) -> None:
        """Beat until `stop`."""
        while not self._done.wait(self._interval):
            self.beat()

    def stop(self) -> None:
        """End the thread; it does not outlive the training."""
        self._done.set()
        self.join()
        self._tell_if_over(self._phases.now)

    def beat(self) -> None:
        """One look: give a sign of life, join the incidents of others, open one if over the limit."""
        self._also()
        now = self._phases.now
        passed = time.monotonic() - now.since
        limit = limit_of(now.phase, self._phases.longest, self._fixed)
        self._give_sign(now, with_place=passed > limit / 2)
        self._tell_if_over(now)
        request = self._journal.folder / f"stall_{self._incident + 1}.json"
        if request.is_file():
            self._join(request)
        elif passed > limit and self._told != now:
            self._told = now
            self._open(request, now, passed, limit)

    def _tell_if_over(self, now: Now) -> None:
        if self._told is not None and self._told != now:
            self._journal.add("stall-over", phase=self._told.phase, step=self._step())
            self._told = None

    def _give_sign(self, now: Now, *, with_place: bool) -> None:
        where = heartbeat.where_main_thread_stands() if with_place else ""
        since = time.time() - (time.monotonic() - now.since)  # of the wall clock
        beat = Beat(self._journal.rank, self._step(), now.phase, since, time.time(), where)
        self._journal.write(lambda: heartbeat.write_beat(self._journal.folder, beat))

    def _open(self, request: Path, now: Now, passed: float, limit: float) -> None:
        """Make the incident known, wait until the other ranks have joined, and tell."""
        facts = {"rank": self._journal.rank, "phase": now.phase, "seconds": passed, "limit": limit}
        try:
            with open(request, "x", encoding="utf-8") as file:
                json.dump(facts, file)
        except FileExistsError:  # another rank was faster
            return
        except OSError:  # the other ranks do not hear of it, but whoever reads the console does
            pass
        stacks = self._write_stacks()
        if self._ranks > 1:
            self._done.wait(3 * self._interval)
        beats = heartbeat.read_beats(self._journal.folder, self._ranks, self._started_at)
        text = describe_stall(now.phase, passed, limit, beats, self._ranks)
        self._journal.add("stall", step=self._step(), text=text, stacks=str(stacks), **facts)
        print(f"swift-grpo-ext [stall] {text}; stacks: {stacks.parent}", file=sys.stderr, flush=True)
        if self._abort is not None:
            self._abort()

    def _join(self, request: Path) -> None:
        """Another rank has opened an incident: write this one's stacks too."""
        self._write_stacks()
        self._give_sign(self._phases.now, with_place=True)
        if self._abort is not None:
            self._done.wait(3 * self._interval)  # the rank that opened it reads our sign of life first
            self._abort()

    def _write_stacks(self) -> Path:
        """The incident is this rank's, too."""
        self._incident += 1
        path = self._journal.folder / f"stall_{self._incident}_rank_{self._journal.rank}.txt"

        def dump() -> None:
            with open(path, "w", encoding="utf-8") as file:
                faulthandler.dump_traceback(file=file, all_threads=True)

        self._journal.write(dump)
        return path


def describe_stall(
    phase: str, passed: float, limit: float, beats: dict[int, Beat], ranks: int, now: float | None = None
) -> str:
    """What the ranks do, and which of them holds up the others: by the one that noticed, in seconds."""
    now = time.time() if now is None else now
    states = "; ".join(heartbeat.in_words(beats[rank], now) for rank in sorted(beats))
    missing = sorted(set(range(ranks)) - set(beats))
    text = f"phase {phase} has lasted {passed:.0f} s, the limit is {limit:.0f} s: {states}"
    if missing:
        text += f"; no sign of life from rank {', '.join(map(str, missing))}"
    if blamed := heartbeat.holders(beats):
        text += f"; the others wait for rank {', '.join(map(str, blamed))}"
    elif heartbeat.wait_apart(beats):
        text += "; they wait in different places, so each waits for a collective that another never enters"
    return text
