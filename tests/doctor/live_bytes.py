"""Counts the bytes of live tensors, on any device and also for fake tensors that hold no memory."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):
    """Within this mode, follow the storages that operations make until they are freed.

    Views share a storage and count once. What existed before the mode began does not count.

    Attributes:
        live: Bytes of storages alive now.
        peak: Most bytes that were ever alive together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and count what it made."""
        result = function(*args, **(kwargs or {}))
        given = {id(tensor.untyped_storage()) for tensor in tree_iter((args, kwargs)) if _is_tensor(tensor)}
        for tensor in tree_iter(result):
            if _is_tensor(tensor):
                self._follow(tensor.untyped_storage(), given)
        return result

    def ignore(self, tensors: Any) -> None:
        """Leave tensors that already exist (parameters, inputs) out of the count."""
        for tensor in tensors:
            self._known.add(tensor.untyped_storage())

    def _follow(self, storage: Any, given: set[int]) -> None:
        if storage in self._known or id(storage) in given:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._freed, size)

    def _freed(self, size: int) -> None:
        self.live -= size


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
