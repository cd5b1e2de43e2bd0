"""The process that runs one reward for `Pool`: it imports once, and pebble forks workers from it.

It reads pickled requests of its parent and answers in JSON: nothing that a reward made is unpickled.
"""

import asyncio
import inspect
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, TimeoutError, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Literal, TypeAlias

from pebble import ProcessExpired, ProcessPool

from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.rewards.runtime.batch import BrokenContractError

# error: the reward raised, or its process died; refused: it broke its contract; skipped: it was not asked
Ended: TypeAlias = Literal["value", "error", "refused", "timeout", "skipped"]
_function: Callable[..., object]  # runs in the workers, which are forks


@dataclass(frozen=True)
class Reply:
    """How one call of a reward ended."""

    ended: Ended
    value: Any  # what the function returned, or why it did not
    traceback: str = ""


async def answered(call: Callable[..., object], *arguments: object) -> Reply:
    """Make a call, awaiting a coroutine; the reply says how it ended, also with an exception."""
    ended: Ended = "value"
    trace = ""
    try:
        value = call(*arguments)
        value = await value if inspect.iscoroutine(value) else value
    except (Exception, SystemExit) as error:
        ended = "refused" if isinstance(error, BrokenContractError) else "error"
        value, trace = told(error), traceback.format_exc()
    return Reply(ended, value, trace)


def told(error: BaseException) -> str:
    """An exception in words: the sentence of one of this package, else its ``repr``."""
    is_ours = isinstance(error, SwiftGrpoExtError)
    return str(error).removeprefix("swift-grpo-ext: ") if is_ours else repr(error)


@dataclass(frozen=True)
class Job:
    """The function that the process loads, and how its workers run it."""

    function: bytes  # pickled; takes a request's items, returns what JSON can carry
    limit: float  # seconds for one request
    workers: int
    plugins: Sequence[str] = ()  # files of ``--external_plugins``, which the pickle may refer to
    kills: int | None = None  # after so many kills in one batch the rest is skipped; None: never
    memory: int | None = None  # most bytes of address space of each process
    first: Sequence[object] | None = None  # arguments of a first call, which imports what the function needs

    def load(self) -> Callable[..., object]:
        """Import the plugins, the function, and what it needs."""
        if self.memory:
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (self.memory, hard))
        if self.plugins:
            from swift.utils import import_external_file

            for path in self.plugins:
                import_external_file(path)
        function: Callable[..., object] = pickle.loads(self.function)
        if self.first:
            asyncio.run(answered(function, *self.first))
        return function


def _end_with(parent: int) -> None:
    """Kill this process and its workers once the parent is gone, even if one hangs in C."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


def _in_worker(pipe: Connection) -> None:
    pipe.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # pebble's handler would not run while C code hangs


def _run(request: bytes) -> str:
    """One request in a worker, as JSON."""
    return json.dumps(vars(asyncio.run(answered(_function, *pickle.loads(request)))))


def _answers(pool: ProcessPool, job: Job, requests: Sequence[bytes]) -> Iterator[tuple[int, Reply]]:
    """Each request's answer as soon as there is one."""
    futures: dict[Future[str], int] = {
        pool.schedule(_run, args=(request,), timeout=job.limit): number
        for number, request in enumerate(requests)
    }
    kills = 0
    for future in as_completed(futures):
        try:
            answer = Reply(**json.loads(future.result()))
        except CancelledError:
            answer = Reply("skipped", f"not asked, since {job.kills} others of its batch were killed")
        except TimeoutError:
            answer = Reply("timeout", f"no answer within {job.limit:g} s")
            kills += 1
            for other in futures if kills == job.kills else ():
                other.cancel()
        except ProcessExpired as error:
            answer = Reply("error", f"the child process ended with {error.exitcode}")
        except BaseException as error:  # SystemExit, or what JSON cannot carry
            answer = Reply("error", repr(error))
        yield futures[future], answer


def main() -> None:
    """Load the job, then answer one batch after the other until the parent closes the pipe."""
    global _function
    pipe = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    logging.disable(logging.WARNING)
    job = pickle.loads(pipe.recv_bytes())
    try:
        _function = job.load()
    except Exception as error:
        fault = {"cannot_load": repr(error), "traceback": traceback.format_exc()}
        pipe.send_bytes(json.dumps(fault).encode())
        return
    pool = ProcessPool(job.workers, initializer=_in_worker, initargs=(pipe,), context=get_context("fork"))
    try:
        while True:
            for number, answer in _answers(pool, job, pickle.loads(pipe.recv_bytes())):
                pipe.send_bytes(json.dumps({"number": number, **vars(answer)}).encode())
    except (EOFError, OSError):  # the parent is gone, or has given up
        os.killpg(0, signal.SIGKILL)
