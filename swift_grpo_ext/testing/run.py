"""Runs the host: as the real ``swift`` command, or inside this process."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from swift_grpo_ext.errors import HostRunError, MissingExtraError
from swift_grpo_ext.settings import current_settings

_TAIL_LINES = 4000


@dataclass(frozen=True)
class SwiftResult:
    """Exit code and output of one run of the ``swift`` command."""

    returncode: int  # negative: the signal that ended it
    tail: str  # last 4000 lines of its stdout and stderr together
    seconds: float  # wall clock
    timed_out: bool = False  # it was killed at its limit


def cpu_environment() -> dict[str, str]:
    """Variables, to be set before torch is imported: no GPU, and no hub, which every start waits 22 s for."""
    return {
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "USE_HF": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def run_swift(
    subcommand: str,
    arguments: Sequence[str],
    env: Mapping[str, str] | None = None,
    ranks: int = 1,
    timeout: float = 600,
    *,
    check: bool = True,
    on_line: Callable[[str], None] | None = None,
    megatron: bool = False,
) -> SwiftResult:
    """Run ``swift <subcommand> <arguments>`` on the CPU, in a process of its own.

    Args:
        subcommand: ``sft``, ``rlhf``, ``infer``, ...
        arguments: Words after the subcommand.
        env: Variables on top of this process's environment and `cpu_environment`.
        ranks: Processes to start; two or more talk over gloo on a free port.
        timeout: Limit in seconds, after which the command and its children are killed.
        check: A command that fails is an error, with the tail of its output.
        on_line: Called with every line of output while the command runs.
        megatron: Run ``megatron <subcommand>``, on the GPUs that ``env`` names.

    Raises:
        HostRunError: The command failed or ran over its limit, and ``check`` is set.
    """
    started = time.monotonic()
    several = {}
    gloo = []
    command = [sys.executable, "-m", "swift.cli._megatron.main"] if megatron else [swift_command()]
    if ranks > 1 or megatron:
        several = {"NPROC_PER_NODE": str(ranks), "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    if ranks > 1 and not megatron:
        gloo = ["--ddp_backend", "gloo"]  # NCCL, the host's default, needs GPUs
    process = subprocess.Popen(
        [*command, subcommand, *arguments, *gloo],
        env={**os.environ, **cpu_environment(), **several, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    tail = _follow(process, timeout, on_line)
    seconds = time.monotonic() - started
    code = process.returncode
    result = SwiftResult(code, tail, seconds, timed_out=code == -signal.SIGKILL and seconds >= timeout)
    if check and result.returncode != 0:
        ended = f"was killed after {timeout:g} s" if result.timed_out else f"ended with {process.returncode}"
        raise HostRunError(f"swift {subcommand} {ended}", where=f"its last output:\n{tail[-4000:]}")
    return result


def run_in_process(subcommand: str, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> object:
    """Run ms-swift's ``<subcommand>_main`` in this process: a second instead of twenty.

    What plugins registered stays, and torch, once imported, ignores changes of ``CUDA_VISIBLE_DEVICES``.
    """
    with _variables({**cpu_environment(), **(env or {})}):
        from swift import pipelines

        return getattr(pipelines, f"{subcommand}_main")(list(arguments))


def swift_command() -> str:
    """Path of the ``swift`` command, the one beside this Python first.

    Raises:
        MissingExtraError: ms-swift is not installed.
    """
    beside = Path(sys.executable).with_name("swift")
    path = str(beside) if beside.is_file() else shutil.which("swift")
    if path is None:
        raise MissingExtraError("no swift command", where=str(beside), fix="pip install ms-swift")
    return path


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on.

    It lies below the ports that Linux gives to outgoing connections (32768 to 60999): gloo opens many, and
    one could take the port before the process that should listen there does.

    Raises:
        OSError: None of a hundred ports is free.
    """
    for port in random.SystemRandom().sample(range(10_000, 30_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("none of 100 ports between 10000 and 30000 is free")


def _follow(process: subprocess.Popen[str], timeout: float, on_line: Callable[[str], None] | None) -> str:
    """Read a process's output to its end; kill it and its children at the limit or on interruption."""
    assert process.stdout is not None
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    limit = Timer(timeout, kill_tree, [process.pid])
    limit.daemon = True
    limit.start()
    try:
        for line in process.stdout:
            tail.append(line)
            if on_line is not None:
                on_line(line.rstrip("\n"))
        process.wait()
    finally:
        limit.cancel()
        if process.poll() is None:
            kill_tree(process.pid)
    return "".join(tail)


def kill_tree(pid: int) -> None:
    """Kill a process with all its descendants: torchrun gives each rank a session of its own."""
    import psutil

    try:
        root = psutil.Process(pid)
        doomed = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in doomed:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    current_settings.cache_clear()  # read once in a process, but every run has its own
    try:
        yield
    finally:
        current_settings.cache_clear()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
