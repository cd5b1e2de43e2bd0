"""The process that runs one reward for `Pool`: it imports once, and pebble forks workers from it.

It reads pickled requests of its parent and answers in JSON: nothing that a reward made is unpickled.
"""

import json
import logging
import os
import pickle
import resource
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, TimeoutError, wait
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from pebble import ProcessExpired, ProcessPool

from swift_grpo_ext.errors import SwiftGrpoExtError

_function: Callable[..., object]  # what workers run; they are forks


@dataclass(frozen=True)
class Job:
    """What the process loads, and how its workers run it."""

    function: bytes  # pickled; takes a request's items, returns what JSON can carry
    plugins: tuple[str, ...]  # files of ``--external_plugins``, which the pickle may refer to
    workers: int
    limit: float  # seconds for one request
    kills: int | None  # after so many in one batch the rest is skipped; None: never
    memory: int | None  # bytes of address space

    def load(self) -> Callable[..., object]:
        """Import the plugins, the function, and what it imports at its first use."""
        if self.memory:
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (self.memory, hard))
        if self.plugins:
            from swift.utils import import_external_file

            for path in self.plugins:
                import_external_file(path)
        function: Callable[..., object] = pickle.loads(self.function)
        if warm_up := getattr(function, "warm_up", None):
            warm_up()
        return function


def _end_with(parent: int) -> None:
    """Leave with all workers when the parent is gone, also where one hangs in C."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


def _in_worker(pipe: Connection) -> None:
    pipe.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # pebble's handler would not run where C code hangs


def _run(request: bytes) -> str:
    """One request in a worker, as JSON."""
    started = time.perf_counter()
    try:
        answer: dict[str, Any] = {"ended": "value", "value": _function(*pickle.loads(request))}
    except SwiftGrpoExtError as error:
        what = str(error).removeprefix("swift-grpo-ext: ")
        answer = {"ended": "refused", "value": what, "traceback": traceback.format_exc()}
    except Exception as error:
        answer = {"ended": "error", "value": repr(error), "traceback": traceback.format_exc()}
    return json.dumps({**answer, "seconds": time.perf_counter() - started})


def _answers(pool: ProcessPool, job: Job, requests: Sequence[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each request's answer as soon as there is one."""
    waiting = list(enumerate(requests))[::-1]
    running: dict[Any, int] = {}
    kills = 0
    while waiting or running:
        if job.kills is not None and kills >= job.kills:
            what = f"not asked, since {kills} others of its batch were killed"
            yield from ((number, {"ended": "skipped", "value": what}) for number, _ in waiting)
            waiting.clear()
        while waiting and len(running) < job.workers:
            number, request = waiting.pop()
            running[pool.schedule(_run, args=(request,), timeout=job.limit)] = number
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            try:
                answer = json.loads(future.result())
            except TimeoutError:
                answer = {"ended": "timeout", "value": f"no answer within {job.limit:g} s"}
                answer["seconds"] = job.limit
            except ProcessExpired as error:
                answer = {"ended": "error", "value": f"the child process ended with {error.exitcode}"}
            except BaseException as error:  # SystemExit, or what cannot be pickled
                answer = {"ended": "error", "value": repr(error)}
            kills += answer["ended"] == "timeout"
            yield running.pop(future), answer


def main() -> None:
    """Load the job, then answer one batch after the other until the parent closes the pipe."""
    global _function
    pipe = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    job = pickle.loads(pipe.recv_bytes())
    try:
        _function = job.load()
    except Exception as error:
        pipe.send_bytes(
            json.dumps({"cannot_load": repr(error), "traceback": traceback.format_exc()}).encode()
        )
        return
    pipe.send_bytes(b"{}")
    pool = ProcessPool(job.workers, initializer=_in_worker, initargs=(pipe,), context=get_context("fork"))
    try:
        while True:
            for number, answer in _answers(pool, job, pickle.loads(pipe.recv_bytes())):
                pipe.send_bytes(json.dumps({"number": number, **answer}).encode())
    except (EOFError, OSError):  # the parent is gone, or has given up
        os.killpg(0, signal.SIGKILL)
