"""The child process that runs rewards: it can be killed when one of them does not come back.

Started as a fresh interpreter by `pool`, never by fork and never by re-importing the user's main module. It
reads pickled jobs that its parent wrote, and answers in JSON, so nothing that a job computes is ever
unpickled by the parent.
"""

from __future__ import annotations

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
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

MEMORY_LIMIT = 6 << 30
"""Bytes of address space that a reward of the catalogue may take; 9**9**9 must not eat the machine."""


@dataclass(frozen=True)
class CatalogueJob:
    """Runs rewards of the catalogue, each job naming its own."""

    names: tuple[str, ...]

    def load(self) -> Callable[..., object]:
        """Import the rewards and what they import on first use."""
        from swift_grpo_ext.rewards.catalogue import get_reward

        _limit_memory(MEMORY_LIMIT)
        rewards = {name: get_reward(name) for name in self.names}
        for reward in rewards.values():
            reward.outcome("<answer>0</answer>", dict.fromkeys(reward.gold, "0"))

        def run(name: str, completion: str, columns: dict[str, object], parameters: dict[str, object]) -> Any:
            outcome = rewards[name].outcome(completion, columns, parameters)
            return [outcome.score, outcome.reason]

        return run


@dataclass(frozen=True)
class PickledJob:
    """Runs a callable of the user's, pickled by the parent.

    Attributes:
        pickled: The callable.
        plugins: Files of ``--external_plugins``, which the pickle may refer to.
    """

    pickled: bytes
    plugins: tuple[str, ...] = ()

    def load(self) -> Callable[..., object]:
        """Import the plugins and unpickle what the parent pickled."""
        if self.plugins:
            from swift.utils import import_external_file

            for path in self.plugins:
                import_external_file(path)
        function = pickle.loads(self.pickled)

        def run(completions: list[str], columns: dict[str, object]) -> Any:
            scores = function(completions, **columns)
            if inspect.iscoroutine(scores):
                scores = asyncio.run(scores)
            return [_plain(score) for score in scores]

        return run


def _plain(score: Any) -> Any:
    """A score as JSON can carry it: None stays None, anything with a float value becomes that."""
    return None if score is None else float(score)


def _limit_memory(limit: int) -> None:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


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
