"""A7: a ``worker_init_fn`` that needs more than the worker's id, or is passed more than it takes."""

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swift_grpo_ext.compat.patch import in_source, patch


@dataclass
class SeededWorker:
    """A worker's start function with the arguments it takes. Picklable, for spawned workers."""

    function: Callable[..., Any]  # called with the worker's id and those facts that it takes
    facts: dict[str, int]  # ``num_workers`` and ``rank``

    def __call__(self, worker_id: int) -> None:
        """Start the worker; if the function did not take the rank, seed by it afterwards."""
        takes = inspect.signature(self.function).parameters
        self.function(worker_id, **{name: value for name, value in self.facts.items() if name in takes})
        if "rank" not in takes:
            seed_worker(**self.facts)


def seed_worker(num_workers: int, rank: int) -> None:
    """Seed by the worker's seed and the rank: ranks may get equal worker seeds (transformers, from 4.52)."""
    import torch
    from transformers import set_seed

    set_seed((num_workers * rank + torch.initial_seed()) % 2**32)


def fitted(function: Callable[..., object] | None, num_workers: int) -> Callable[..., object] | None:
    """The start function itself where it fits, else one that passes it only the arguments it takes."""
    inner = getattr(function, "inner", None)  # the host's wrapper that replays plugins in workers
    if callable(inner):
        function.inner = fitted(inner, num_workers)  # type: ignore[union-attr]
        return function
    if function is None or isinstance(function, SeededWorker):
        return function
    plain = function
    bound = {}
    if isinstance(function, functools.partial) and not function.args:
        plain = function.func
        bound = function.keywords
    facts = {"num_workers": num_workers, "rank": int(os.environ.get("RANK", "0"))}
    try:
        takes = set(inspect.signature(plain).parameters)
    except ValueError:  # a builtin without a signature
        return function
    missing = takes & set(facts) - set(bound)
    refused = set(facts) & set(bound) - takes
    return SeededWorker(plain, {**facts, **bound}) if missing or refused else function


@patch(
    "A7",
    "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter.__init__",
    fingerprint="self, loader",
    # A worker's start function is called with only the worker's id.
    probe=lambda: in_source("torch.utils.data._utils.worker:_worker_loop", "init_fn(worker_id)"),
    remove_when="torch passes its workers' start function the number of workers and the rank",
)
def fix(start: Callable[..., object], iterator: Any, loader: Any) -> None:
    """Fit the loader's ``worker_init_fn``, whoever set it, right before workers start."""
    loader.worker_init_fn = fitted(loader.worker_init_fn, loader.num_workers)
    start(iterator, loader)
