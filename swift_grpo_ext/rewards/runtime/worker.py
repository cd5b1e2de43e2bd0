"""What a child process of `Pool` runs: a fresh interpreter, which can be killed.

It reads pickled requests of its parent and answers in JSON: the parent unpickles nothing that a job computed.
"""

import asyncio
import inspect
import json
import logging
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import astuple, dataclass
from multiprocessing.connection import Connection

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
            return astuple(outcome)

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
    """Answer one request after the other until the parent closes the pipe; the first is the job to load."""
    descriptor = int(sys.argv[1])
    parent = int(sys.argv[2])
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    logging.disable(logging.WARNING)
    pipe = Connection(descriptor)
    run: Callable[..., object] | None = None
    while True:
        try:
            request = pipe.recv_bytes()
        except EOFError:
            return
        try:
            if run is None:
                run = pickle.loads(request).load()
                value = None
            else:
                value = run(*pickle.loads(request))
            answer = {"value": value}
        except Exception:
            answer = {"failed": traceback.format_exc()}
        try:
            pipe.send_bytes(json.dumps(answer).encode())
        except OSError:  # the parent is gone, or has given up on this answer
            return
