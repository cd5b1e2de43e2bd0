"""Rewards in processes with a hard limit: a hung sympy cannot be interrupted in a thread, so it is killed.

One process per reward imports what it needs, without torch's threads or the parent's GPU; pebble forks the
workers from it (`worker`), so that a killed one is replaced in milliseconds.
"""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime.worker import Job, Reply

START_LIMIT = 180.0  # seconds to import what the reward needs, which no completion is charged for
# The process is not a rank: it must neither join the process group nor touch a GPU.
_OF_A_RANK = re.compile(r"((LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE)\Z|MASTER_|TORCHELASTIC_|ACCELERATE_")
# The parent's module path, set before anything of the package is imported.
_BOOT = (
    "import sys; del sys.path[0]; import json; sys.path[:] = json.loads(sys.argv[3]); "
    "from swift_grpo_ext.rewards.runtime.worker import main; main()"
)


def worker_count() -> int:
    """Workers of this rank: its share of the cores, at most 4."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(4, (os.cpu_count() or 1) // ranks))


class Pool:
    """Runs one function under a hard limit. Safe to use from any thread.

    Args:
        function: Picklable; is given a request's items, and returns what JSON can carry.
        limit: Seconds for one request.
        workers: Processes; by default this rank's share of the cores.
        options: Further fields of `worker.Job`.

    Raises:
        RewardError: The function cannot be pickled.
    """

    def __init__(
        self,
        function: Callable[..., object],
        limit: float,
        workers: int | None = None,
        **options: Any,
    ) -> None:
        fix = "define it at the top of a module or plugin file, under the name it keeps"
        self._job = Job(_pickled(function, "the reward", fix), limit, workers or worker_count(), **options)
        self._pipe: Connection
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

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
        left = set(range(len(pickled)))
        with self._lock:
            self._start()
            # Every answer, even for a killed worker, comes before this.
            deadline = time.monotonic() + START_LIMIT + self._job.limit * (1 + len(left))
            try:
                with suppress(OSError):  # the process is gone; `_received` notices
                    self._pipe.send_bytes(pickle.dumps(pickled))
                while left and (received := self._received(deadline)) is not None:
                    left.remove(number := received.pop("number"))
                    yield number, Reply(**received)
                yield from ((number, Reply("error", "the process of the reward ended")) for number in left)
            finally:
                if left:  # it still runs this call's requests: a later call must not get their answers
                    self._end()

    def close(self) -> None:
        """End the process and its workers."""
        with self._lock:
            self._end()

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
        with suppress(OSError):
            self._pipe.send_bytes(pickle.dumps(self._job))

    def _received(self, deadline: float) -> dict[str, Any] | None:
        """The next answer; None if the process is gone or silent for too long.

        Raises:
            RewardError: The process cannot load the function.
        """
        assert self._process is not None
        message: dict[str, Any] | None = None
        with suppress(EOFError, OSError):
            while message is None and time.monotonic() < deadline:
                if self._pipe.poll(1.0):
                    message = json.loads(self._pipe.recv_bytes())
                elif self._process.poll() is not None:  # its workers hold the pipe open
                    break
        if message and "cannot_load" in message:
            what = f"a child process cannot load the reward: {message['cannot_load']}"
            fix = "define the reward in a module or plugin file that imports without side effects"
            raise RewardError(what, where=message["traceback"].strip(), fix=fix)
        return message

    def _end(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()
        self._process = None


def _pickled(value: object, name: str, fix: str = "") -> bytes:
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise RewardError(f"{name} cannot be sent to a child process: {error}", fix=fix) from None
