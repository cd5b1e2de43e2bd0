"""Child processes that run one job at a time each, under a hard limit.

A hung sympy cannot be interrupted off the main thread: it is killed together with its process.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any, Literal, TypeAlias

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime.worker import Child, Job

START_LIMIT = 180.0  # seconds for a child to import what it needs, which does not count as a job's time

Ended: TypeAlias = Literal["value", "failed", "timeout", "died", "skipped"]


@dataclass(frozen=True)
class Answer:
    """How one request ended."""

    ended: Ended  # failed: the job raised; died: the child ended; skipped: never started
    value: Any  # the job's value, or the traceback, or what is known of the end
    seconds: float = 0.0  # time that it took


@dataclass(eq=False)
class Pool:
    """Up to `workers` children for one kind of job. Safe to use from any thread, and in a forked child."""

    job: Job  # what each child loads
    workers: int  # most children at a time; started when there is work for them
    limit: float  # seconds for one request
    children: list[Child] = field(default_factory=list, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        _pools.add(self)

    def map(self, requests: Sequence[tuple[object, ...]], give_up_after: int | None = None) -> list[Answer]:
        """Run every request; after more than `give_up_after` that went wrong the rest is skipped."""
        with self._lock:
            return _Run(self, [_pickled(request) for request in requests], give_up_after).answers()

    def warm_up(self) -> None:
        """Let one child import what it needs while the caller does something else."""
        with self._lock:
            if not self.children:
                self.start_child()

    def close(self) -> None:
        """End all children."""
        while self.children:
            self.drop(self.children[-1])

    def forget(self) -> None:
        """In a forked process: the children are the parent's, and the lock may have been held there."""
        self.children = []
        self._lock = threading.Lock()

    def start_child(self) -> None:
        """Start a child; it is ready when it says so."""
        self.children.append(Child.start(self.job))

    def drop(self, child: Child) -> None:
        """End a child for good."""
        child.end()
        self.children.remove(child)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _for_all_pools(action: Callable[[Pool], None]) -> None:
    for pool in list(_pools):
        action(pool)


atexit.register(_for_all_pools, Pool.close)
os.register_at_fork(after_in_child=lambda: _for_all_pools(Pool.forget))


@dataclass
class _Run:
    """One call of `Pool.map`."""

    pool: Pool
    requests: list[bytes]
    give_up_after: int | None
    done: dict[int, Answer] = field(default_factory=dict)
    waiting: deque[int] = field(default_factory=deque)
    bad: int = 0

    def answers(self) -> list[Answer]:
        self.waiting.extend(range(len(self.requests)))
        while len(self.done) < len(self.requests):
            self._start_and_hand_out()
            self._collect()
        return [self.done[index] for index in range(len(self.requests))]

    def _start_and_hand_out(self) -> None:
        if self.give_up_after is not None and self.bad > self.give_up_after:
            self.done |= {index: Answer("skipped", "too many failures before it") for index in self.waiting}
            self.waiting.clear()
        starting = sum(not child.ready for child in self.pool.children)
        idle = [child for child in self.pool.children if child.ready and child.request is None]
        missing = len(self.waiting) - len(idle) - starting
        for _ in range(min(missing, self.pool.workers - len(self.pool.children))):
            self.pool.start_child()
        for child in idle[: len(self.waiting)]:
            child.request, child.started = self.waiting.popleft(), time.monotonic()
            try:
                child.pipe.send_bytes(self.requests[child.request])
            except OSError:
                self._settle(child, "died", child.obituary())

    def _collect(self) -> None:
        """Wait for the next answer or deadline, and take in all that there is."""
        busy = [child for child in self.pool.children if not child.ready or child.request is not None]
        if not busy:
            return
        next_end = min(child.started + self._limit(child) for child in busy)
        wait([child.pipe for child in busy], max(0.0, next_end - time.monotonic()))
        for child in busy:
            if child.pipe.poll():
                self._read(child)
            elif time.monotonic() >= child.started + self._limit(child):
                self._settle(child, "timeout", f"no answer within {self._limit(child):g} s")

    def _limit(self, child: Child) -> float:
        return self.pool.limit if child.ready else START_LIMIT

    def _read(self, child: Child) -> None:
        try:
            answer = json.loads(child.pipe.recv_bytes())
        except (EOFError, OSError):
            self._settle(child, "died", child.obituary())
            return
        if not child.ready:
            child.ready = "ready" in answer
            if not child.ready:
                self._refuse(child, answer["failed"])
            return
        ((ended, value),) = answer.items()
        self._record(child, ended, value)

    def _settle(self, child: Child, ended: Ended, what: str) -> None:
        """A child hangs or is gone: record what it was at, and end it."""
        if not child.ready:
            self._refuse(child, what)
        self._record(child, ended, what)
        self.pool.drop(child)

    def _record(self, child: Child, ended: Ended, value: object) -> None:
        if child.request is not None:
            self.done[child.request] = Answer(ended, value, time.monotonic() - child.started)
            self.bad += ended != "value"
        child.request = None

    def _refuse(self, child: Child, what: str) -> None:
        self.pool.drop(child)
        lines = what.strip().splitlines()
        raise RewardError(
            f"a child process cannot load the reward: {lines[-1] if lines else 'no reason given'}",
            where=what.strip(),
            fix="define the reward in a module or plugin file that can be imported, without side effects",
        )


def _pickled(request: tuple[object, ...]) -> bytes:
    try:
        return pickle.dumps(request)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise RewardError(f"a row cannot be sent to a child process: {error}") from None
