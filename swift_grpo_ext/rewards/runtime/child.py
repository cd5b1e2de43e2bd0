"""One child process: a fresh interpreter that loads a job and answers requests over a pipe."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any, Protocol

# A child is no rank: it must neither join the process group nor touch a GPU.
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
_RANK_PREFIXES = ("MASTER_", "TORCHELASTIC_", "ACCELERATE_")
# The parent's module path, set before anything of the package is imported.
_BOOT = (
    "import sys; del sys.path[0]; import json; sys.path[:] = json.loads(sys.argv[3]); "
    "from swift_grpo_ext.rewards.runtime.worker import main; main()"
)


class Job(Protocol):
    """What a child loads once: a picklable object whose ``load()`` returns the function to run."""

    def load(self) -> object:
        """Import what is needed and return the function that answers requests."""


@dataclass
class Child:
    """A child process."""

    process: subprocess.Popen[bytes]
    pipe: Connection  # the parent's end
    started: float  # when it was started, or given its request; on the monotonic clock
    ready: bool = False  # whether it has loaded its job
    request: int | None = None  # number of the request that it is at, None if idle

    @classmethod
    def start(cls, job: Job) -> Child:
        """Start a child; it is ready when it says so."""
        ours, theirs = Pipe()
        paths = json.dumps([os.path.abspath(path or ".") for path in sys.path])
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(theirs.fileno()), str(os.getpid()), paths],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
        theirs.close()
        ours.send_bytes(pickle.dumps(job))
        return cls(process, ours, time.monotonic())

    def end(self) -> None:
        """Kill it and wait for it."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()

    def obituary(self) -> str:
        """What is known of the end of a child that ended by itself."""
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the child process closed its pipe"
        return f"the child process ended with {code}"


def _has_descriptor(stream: Any) -> bool:
    try:
        return isinstance(stream.fileno(), int)
    except (AttributeError, OSError):
        return False


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _RANK_VARIABLES and not name.startswith(_RANK_PREFIXES)
    }
    return {**kept, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
