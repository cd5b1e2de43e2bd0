"""A child process that runs rewards, from both ends: a fresh interpreter, which can be killed.

It reads pickled jobs of its parent and answers in JSON: the parent unpickles nothing that a job computed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Protocol, TextIO

# A child is no rank: it must neither join the process group nor touch a GPU.
_OF_A_RANK = re.compile(r"((LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE)\Z|MASTER_|TORCHELASTIC_|ACCELERATE_")
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
        kept = {name: value for name, value in os.environ.items() if not _OF_A_RANK.match(name)}
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(theirs.fileno()), str(os.getpid()), paths],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
            env={**kept, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
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


def _has_descriptor(stream: TextIO) -> bool:
    try:
        return isinstance(stream.fileno(), int)
    except (AttributeError, OSError):
        return False


MEMORY_LIMIT = 6 << 30  # bytes of address space for a reward of the catalogue: 9**9**9 eats no machine


@dataclass(frozen=True)
class CatalogueJob:
    """Runs rewards of the catalogue, each job naming its own."""

    names: tuple[str, ...]

    def load(self) -> Callable[..., object]:
        """Import the rewards and what they import on first use."""
        import resource

        from swift_grpo_ext.rewards.catalogue import get_reward

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, hard))
        rewards = {name: get_reward(name) for name in self.names}
        for reward in rewards.values():
            reward.outcome("<answer>0</answer>", dict.fromkeys(reward.gold, "0"))

        def run(
            name: str, completion: str, columns: dict[str, object], parameters: dict[str, object]
        ) -> object:
            outcome = rewards[name].outcome(completion, columns, parameters)
            return [outcome.score, outcome.reason]

        return run


@dataclass(frozen=True)
class PickledJob:
    """Runs a callable of the user's, pickled by the parent."""

    pickled: bytes
    plugins: tuple[str, ...] = ()  # files of ``--external_plugins``, which the pickle may refer to

    def load(self) -> Callable[..., object]:
        """Import the plugins and unpickle what the parent pickled."""
        if self.plugins:
            from swift.utils import import_external_file

            for path in self.plugins:
                import_external_file(path)
        function = pickle.loads(self.pickled)

        def run(completions: list[str], columns: dict[str, object]) -> object:
            scores = function(completions, **columns)
            scores = asyncio.run(scores) if inspect.iscoroutine(scores) else scores
            return [None if score is None else float(score) for score in scores]  # as JSON can carry them

        return run


def _die_with(parent: int) -> None:
    """Leave when the parent is gone, even in the middle of a job."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main() -> None:
    """Load the job, say so, then answer one request after the other until the parent closes the pipe."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    logging.disable(logging.WARNING)
    pipe = Connection(descriptor)
    try:
        run = pickle.loads(pipe.recv_bytes()).load()
    except Exception:
        pipe.send_bytes(json.dumps({"failed": traceback.format_exc()}).encode())
        return
    pipe.send_bytes(b'{"ready": true}')
    while True:
        try:
            request = pipe.recv_bytes()
        except EOFError:
            return
        try:
            answer = {"value": run(*pickle.loads(request))}
        except Exception:
            answer = {"failed": traceback.format_exc()}
        pipe.send_bytes(json.dumps(answer).encode())
