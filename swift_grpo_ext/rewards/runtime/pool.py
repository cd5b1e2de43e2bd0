"""Rewards in processes with a hard limit: a hung sympy cannot be interrupted in a thread, so it is killed.

One process a reward imports what the reward needs, without torch's threads or the parent's GPU; pebble forks
the workers from it (`worker`), so that one which was killed is replaced in milliseconds.
"""

import atexit
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any, Literal, TypeAlias

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime.worker import Job

START_LIMIT = 180.0  # seconds to import what the reward needs, which is no completion's time
# It is no rank: it must neither join the process group nor touch a GPU.
_OF_A_RANK = re.compile(r"((LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE)\Z|MASTER_|TORCHELASTIC_|ACCELERATE_")
# The parent's module path, set before anything of the package is imported.
_BOOT = (
    "import sys; del sys.path[0]; import json; sys.path[:] = json.loads(sys.argv[3]); "
    "from swift_grpo_ext.rewards.runtime.worker import main; main()"
)

# error: the reward raised, or its process died; refused: it broke its contract; skipped: it was not asked
Ended: TypeAlias = Literal["value", "error", "refused", "timeout", "skipped"]


@dataclass(frozen=True)
class Reply:
    """How one request ended."""

    ended: Ended
    value: Any  # what the function returned, or why it did not
    seconds: float = 0.0
    traceback: str = ""


def worker_count() -> int:
    """Workers of this rank: its share of the cores, at most 4."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(4, (os.cpu_count() or 1) // ranks))


class Pool:
    """Runs one function under a hard limit. Safe to use from any thread, and in a forked child.

    Args:
        function: Picklable; is given a request's items, and returns what JSON can carry.
        limit: Seconds for one request.
        plugins: Files that define what the pickle refers to.
        kills: After so many requests of a batch that ran into the limit, the rest is not asked.
        memory: Most bytes of address space of each process.

    Raises:
        RewardError: The function cannot be pickled.
    """

    def __init__(
        self,
        function: Callable[..., object],
        limit: float,
        *,
        workers: int | None = None,
        plugins: Sequence[str] = (),
        kills: int | None = None,
        memory: int | None = None,
    ) -> None:
        fix = "define it at the top of a module or plugin file, under the name it keeps"
        pickled = _pickled(function, "the reward", fix)
        self._job = Job(pickled, tuple(plugins), workers or worker_count(), limit, kills, memory)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection
        self._loaded = False
        self._lock = threading.Lock()
        _pools.add(self)

    @property
    def started(self) -> bool:
        """There is a process."""
        return self._process is not None

    def warm_up(self) -> None:
        """Let the process import what it needs while the caller does something else."""
        with self._lock:
            self._start()

    def answers(self, requests: Sequence[tuple[object, ...]]) -> Iterator[tuple[int, Reply]]:
        """The number of each request and its answer, as soon as there is one.

        Raises:
            RewardError: A request cannot be pickled, or the process cannot load the function.
        """
        pickled = [_pickled(request, "a row") for request in requests]
        with self._lock:
            whole = False
            try:
                self._start()
                self._load()
                with suppress(OSError):  # it is gone, as `_received` will find
                    self._pipe.send_bytes(pickle.dumps(pickled))
                left = set(range(len(pickled)))
                while left:
                    received = self._received(time.monotonic() + self._patience(len(left)))
                    if received is None:
                        why = Reply("error", "the process of the reward ended")
                        yield from ((number, why) for number in left)
                        return
                    left.remove(number := received.pop("number"))
                    yield number, Reply(**received)
                whole = True
            finally:
                if not whole:  # it is at requests of this call: no answer to them may come later
                    self._end()

    def close(self) -> None:
        """End the process and its workers."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """In a forked process: the process is the parent's, and the lock may have been held there."""
        self._process = None
        self._lock = threading.Lock()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        self._pipe, theirs = Pipe()
        paths = json.dumps([os.path.abspath(path or ".") for path in sys.path])
        kept = {name: value for name, value in os.environ.items() if not _OF_A_RANK.match(name)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(theirs.fileno()), str(os.getpid()), paths],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,  # standard error: standard output may be a report in JSON
            env={**kept, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )
        theirs.close()
        self._loaded = False
        with suppress(OSError):
            self._pipe.send_bytes(pickle.dumps(self._job))

    def _load(self) -> None:
        """Wait until the function is loaded.

        Raises:
            RewardError: It cannot be.
        """
        if self._loaded:
            return
        received = self._received(time.monotonic() + START_LIMIT)
        if received != {}:
            problem = received or {"cannot_load": "its process ended, or takes too long", "traceback": ""}
            what = f"a child process cannot load the reward: {problem['cannot_load']}"
            fix = "define the reward in a module or plugin file that imports without side effects"
            raise RewardError(what, where=str(problem["traceback"]).strip(), fix=fix)
        self._loaded = True

    def _patience(self, requests: int) -> float:
        """Seconds after which not even a killed worker's answer will come."""
        return self._job.limit * (1 + requests) + START_LIMIT

    def _received(self, deadline: float) -> dict[str, Any] | None:
        """The next message; None if the process is gone or silent for too long."""
        assert self._process is not None
        with suppress(EOFError, OSError):
            while time.monotonic() < deadline:
                if self._pipe.poll(1.0):
                    message: dict[str, Any] = json.loads(self._pipe.recv_bytes())
                    return message
                if self._process.poll() is not None:  # its workers hold the pipe open
                    return None
        return None

    def _end(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()
        self._process = None


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _for_all_pools(action: Callable[[Pool], None]) -> None:
    for pool in list(_pools):
        action(pool)


atexit.register(_for_all_pools, Pool._end)
os.register_at_fork(after_in_child=lambda: _for_all_pools(Pool.forget))


def _pickled(value: object, name: str, fix: str = "") -> bytes:
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise RewardError(f"{name} cannot be sent to a child process: {error}", fix=fix) from None
