"""Runs of ms-swift on several ranks that start in a moment: forks of a process that has imported the libraries.

A rank of ``swift rlhf`` imports for ten seconds before it trains for three. Here one process of the session
imports, and each run forks its ranks from it, with their environment and their arguments: they do what
``torchrun`` has them do. What is about the command, the launcher or signals takes `testing.run_swift`.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from swift_grpo_ext.errors import HostRunError
from swift_grpo_ext.rewards.runtime import pool
from swift_grpo_ext.testing import SwiftResult, cpu_environment
from swift_grpo_ext.testing.run import free_port
from tests.asserted_modes import asserting_mode

SERVER = Path(__file__).with_name("forked_server.py")
TICK = 0.02


@dataclass(frozen=True)
class Ranks:
    """What the processes of a run left, by rank."""

    codes: list[int]  # negative is the signal that ended it
    written: list[str]  # stdout and stderr together
    late: bool  # they were ended because the limit was over


def run_ranks(
    subcommand: str,
    arguments: Sequence[str],
    env: Mapping[str, str] | None = None,
    ranks: int = 2,
    timeout: float = 300,
    *,
    check: bool = True,
    on_line: Callable[[str], None] | None = None,
) -> SwiftResult:
    """The ranks of ``swift <subcommand> <arguments>`` over gloo, with the contract of `testing.run_swift`.

    Each rank asserts that it is in the mode that the arguments ask for.
    """
    started = time.monotonic()
    words, mode = asserting_mode(arguments, ranks)
    words += ["--ddp_backend", "gloo"] if ranks > 1 else []
    ended = fork_ranks(f"swift.cli.{subcommand}", words, {**mode, **(env or {})}, ranks, timeout, on_line)
    tail = "".join(ended.written)[-400_000:]
    code = next((code for code in ended.codes if code != 0), 0)
    if check and code != 0:
        how = f"was killed after {timeout:g} s" if ended.late else f"ended with {ended.codes}"
        raise HostRunError(f"swift {subcommand} {how}", where=f"its last output:\n{tail[-4000:]}")
    return SwiftResult(code, tail, time.monotonic() - started, ended.late)


def fork_ranks(
    program: str | Path,
    words: Sequence[str],
    env: Mapping[str, str] | None = None,
    ranks: int = 2,
    timeout: float = 300,
    on_line: Callable[[str], None] | None = None,
) -> Ranks:
    """Run a module, or a script by its path, as the main one of several ranks; ``on_line`` hears them all."""
    variables = {**os.environ, **cpu_environment(), "OMP_NUM_THREADS": "1"}
    variables |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **(env or {})}
    variables.pop("NPROC_PER_NODE", None)
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"rank_{rank}.log" for rank in range(ranks)]
        order = {
            "program": str(program),
            "words": list(words),
            "env": variables,
            "logs": list(map(str, logs)),
            "cwd": os.getcwd(),
            "path": [*variables.get("PYTHONPATH", "").split(os.pathsep), *sys.path],
            "timeout": timeout,
        }
        done = threading.Event()
        follower = threading.Thread(target=_follow, args=(logs, done, on_line))
        follower.start()
        try:
            answer = json.loads(_ask(json.dumps(order)))
        finally:
            done.set()
            follower.join()
        return Ranks(answer["codes"], [log.read_text(errors="replace") for log in logs], answer["late"])


def _follow(logs: list[Path], done: threading.Event, on_line: Callable[[str], None] | None) -> None:
    """Hand on what the ranks write, line by line, until they have ended."""
    places = [0] * len(logs)
    last = on_line is None
    while not last:
        last = done.wait(TICK)
        for number, log in enumerate(logs):
            written = log.read_bytes()[places[number] :] if log.exists() else b""
            whole = len(written) if last else written.rfind(b"\n") + 1
            places[number] += whole
            for line in written[:whole].decode(errors="replace").splitlines():
                on_line(line)


def _ask(order: str) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(_server())
        connection.sendall(order.encode() + b"\n")
        with connection.makefile() as answers:
            return answers.readline()


class ForkedWorker:
    """In the place of `subprocess.Popen` for a child of `rewards.runtime.pool`, which imports for 7 s."""

    def __init__(
        self, command: Sequence[str], pass_fds: Sequence[int], env: Mapping[str, str], **_rest: object
    ):
        _python, _c, program, _descriptor, _parent, *words = command
        order = json.dumps({"program": program, "words": words, "env": dict(env)})
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server())
        socket.send_fds(self._connection, [order.encode() + b"\n"], list(pass_fds))
        self._answers = self._connection.makefile()
        self.pid = int(self._answers.readline())
        self._code: int | None = None

    def kill(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        """How it ended; None if it goes on."""
        if self._code is None and not select.select([self._connection], [], [], 0)[0]:
            return None
        return self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """How it ended."""
        if self._code is None:
            self._connection.settimeout(timeout)
            try:
                self._code = int(self._answers.readline())
            except TimeoutError:
                raise subprocess.TimeoutExpired("a worker", timeout or 0) from None
        return self._code


@contextmanager
def forked_workers() -> Iterator[None]:
    """While this is open, children of reward pools are forks of a process that has imported ms-swift."""
    with pytest.MonkeyPatch.context() as patch:
        stand_in = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedWorker})
        patch.setattr(pool, "subprocess", stand_in)
        yield


@cache
def _server() -> str:
    """Path of the socket on which this process's server listens; started at the first run."""
    folder = tempfile.mkdtemp(prefix="forked-")
    path = f"{folder}/socket"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    server = subprocess.Popen(
        [sys.executable, SERVER, str(listening.fileno())],
        pass_fds=[listening.fileno()],
        env={**os.environ, **cpu_environment(), "OMP_NUM_THREADS": "1"},
    )
    listening.close()
    atexit.register(server.kill)
    return path
