"""Child processes that run one job at a time each, under a hard limit.

A hung sympy cannot be interrupted off the main thread: it is killed together with its process.
"""

import atexit
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Pipe, wait
from typing import Any, Literal, Protocol, TypeAlias

from swift_grpo_ext.errors import RewardError

START_LIMIT = 180.0  # seconds for a child to import what it needs, which does not count as a job's time
# what a child is at when it is at none of the requests, which count from 0
LOADING = -1
IDLE = -2
# A child is no rank: it must neither join the process group nor touch a GPU.
_OF_A_RANK = re.compile(r"((LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE)\Z|MASTER_|TORCHELASTIC_|ACCELERATE_")
# The parent's module path, set before anything of the package is imported.
_BOOT = (
    "import sys; del sys.path[0]; import json; sys.path[:] = json.loads(sys.argv[3]); "
    "from swift_grpo_ext.rewards.runtime.worker import main; main()"
)

Ended: TypeAlias = Literal["value", "failed", "timeout", "died", "skipped"]


@dataclass(frozen=True)
class Answer:
    """How one request ended."""

    ended: Ended  # failed: the job raised; died: the child ended; skipped: never started
    value: Any  # the job's value, or the traceback, or what is known of the end
    seconds: float = 0.0  # time that it took

    @property
    def traceback(self) -> str:
        """That of a job that raised; else empty."""
        return str(self.value) if self.ended == "failed" else ""

    @property
    def reason(self) -> str:
        """The last line of what is known of an end without a value."""
        return (str(self.value).strip().splitlines() or ["no reason given"])[-1]


class Job(Protocol):
    """What a child loads once: a picklable object whose ``load()`` returns the function to run."""

    def load(self) -> object:
        """Import what is needed and return the function that answers requests."""


class Child:
    """A child process, which loads the job at once."""

    def __init__(self, job: Job) -> None:
        self.pipe, theirs = Pipe()
        paths = json.dumps([os.path.abspath(path or ".") for path in sys.path])
        kept = {name: value for name, value in os.environ.items() if not _OF_A_RANK.match(name)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(theirs.fileno()), str(os.getpid()), paths],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,  # standard error: standard output may be a report in JSON
            env={**kept, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        theirs.close()
        self.ask(LOADING, pickle.dumps(job), START_LIMIT)

    def ask(self, number: int, request: bytes, limit: float) -> None:
        """Send it a request, to be answered within `limit` seconds."""
        self.request = number
        self.started = time.monotonic()
        self.limit = limit
        with suppress(OSError):  # it is gone, as its answer will say
            self.pipe.send_bytes(request)

    def answer(self) -> Answer | None:
        """Its answer, if there is one or its time is over."""
        ended: Ended = "timeout"
        value = f"no answer within {self.limit:g} s"
        seconds = time.monotonic() - self.started
        try:
            if self.pipe.poll():
                ((ended, value),) = json.loads(self.pipe.recv_bytes()).items()
            elif seconds < self.limit:
                return None
        except (EOFError, OSError):
            ended = "died"
            value = "the child process closed its pipe"
            with suppress(subprocess.TimeoutExpired):
                value = f"the child process ended with {self.process.wait(timeout=5)}"
        return Answer(ended, value, seconds)

    def end(self) -> None:
        """Kill it and wait for it."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()


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
        pickled = [_pickled(request) for request in requests]
        waiting = deque(range(len(pickled)))
        done = dict[int, Answer]()
        bad = 0
        with self._lock, ExitStack() as interrupted:
            interrupted.callback(self.close)  # children are at requests of this call: none outlives it
            while len(done) < len(pickled):
                self._hand_out(waiting, pickled)
                for number, answer in self._collected():
                    done[number] = answer
                    bad += answer.ended != "value"
                if give_up_after is not None and bad > give_up_after:
                    done |= dict.fromkeys(waiting, Answer("skipped", "too many failures before it"))
                    waiting.clear()
            interrupted.pop_all()
        return [done[number] for number in range(len(pickled))]

    def warm_up(self) -> None:
        """Let one child import what it needs while the caller does something else."""
        with self._lock:
            if not self.children:
                self.children.append(Child(self.job))

    def close(self) -> None:
        """End all children."""
        while self.children:
            self.children.pop().end()

    def forget(self) -> None:
        """In a forked process: the children are the parent's, and the lock may have been held there."""
        self.children = []
        self._lock = threading.Lock()

    def _hand_out(self, waiting: deque[int], requests: Sequence[bytes]) -> None:
        """Give waiting requests to idle children; start more where there are too few."""
        idle = [child for child in self.children if child.request == IDLE]
        missing = len(waiting) - len(idle) - sum(child.request == LOADING for child in self.children)
        for _ in range(min(missing, self.workers - len(self.children))):
            self.children.append(Child(self.job))
        for child in idle[: len(waiting)]:
            number = waiting.popleft()
            child.ask(number, requests[number], self.limit)

    def _collected(self) -> Iterator[tuple[int, Answer]]:
        """Wait for the next answer or deadline, and give the answers there are; late children are ended.

        Raises:
            RewardError: A child process cannot load the reward.
        """
        busy = [child for child in self.children if child.request != IDLE]
        next_end = min(child.started + child.limit for child in busy)
        wait([child.pipe for child in busy], max(0.0, next_end - time.monotonic()))
        for child in busy:
            if (answer := child.answer()) is None:
                continue
            number = child.request
            child.request = IDLE
            loaded = number != LOADING or answer.ended == "value"
            if not loaded or answer.ended in ("timeout", "died"):
                self.children.remove(child)
                child.end()
            if not loaded:
                what = f"a child process cannot load the reward: {answer.reason}"
                fix = "define the reward in a module or plugin file that imports without side effects"
                raise RewardError(what, where=str(answer.value).strip(), fix=fix)
            if number != LOADING:
                yield number, answer


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _for_all_pools(action: Callable[[Pool], None]) -> None:
    for pool in list(_pools):
        action(pool)


atexit.register(_for_all_pools, Pool.close)
os.register_at_fork(after_in_child=lambda: _for_all_pools(Pool.forget))


def _pickled(request: tuple[object, ...]) -> bytes:
    try:
        return pickle.dumps(request)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise RewardError(f"a row cannot be sent to a child process: {error}") from None
