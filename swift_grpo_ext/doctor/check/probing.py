"""Runs reward functions of the host and of the user's plugins in a child process, under a limit."""

from __future__ import annotations

import asyncio
import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from swift_grpo_ext.rewards.runtime.pool import Answer, Pool

LIMIT = 15.0
"""Seconds that one request may take: a single completion at first, then all of them together."""


@dataclass(frozen=True)
class ProbeJob:
    """What the child loads: the host's rewards, ours, and those that the plugins register."""

    plugins: tuple[str, ...]
    catalogue: bool

    def load(self) -> Callable[..., object]:
        """Import the host's rewards; plugins are imported at the first request, which has a limit."""
        from swift.rewards import orms
        from swift.utils import import_external_file

        if self.catalogue:
            from swift_grpo_ext.rewards.registration import register_orms

            register_orms()

        def run(
            name: str, arguments: dict[str, object], completions: list[str], columns: dict[str, object]
        ) -> Any:
            for path in self.plugins:
                import_external_file(path)
            if name not in orms:
                return {"unknown": difflib.get_close_matches(name, orms, n=1, cutoff=0.5)}
            if not completions:
                return {"scores": []}
            function = orms[name](args=SimpleNamespace(**arguments))
            state = SimpleNamespace(global_step=0, max_steps=1, epoch=0.0, log_history=[])
            scores = function(completions, trainer_state=state, **columns)
            if asyncio.iscoroutine(scores):
                scores = asyncio.run(scores)
            return {"scores": [_plain(score) for score in scores]}

        return run


@lru_cache(maxsize=4)
def _pool(plugins: tuple[str, ...], catalogue: bool) -> Pool:
    return Pool(ProbeJob(plugins, catalogue), workers=1, limit=LIMIT)


def ask(
    job: ProbeJob,
    name: str,
    arguments: dict[str, object],
    completions: list[str],
    columns: dict[str, list[object]],
) -> Answer:
    """Score completions with one reward function."""
    (answer,) = _pool(job.plugins, job.catalogue).map([(name, arguments, completions, columns)])
    return answer


def _plain(score: Any) -> float | str | None:
    """A score as JSON carries it; what is not finite, or no number, by its name."""
    if score is None:
        return None
    number = float(score)
    return number if math.isfinite(number) else str(number)
