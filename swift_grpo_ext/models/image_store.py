"""Work on images done once: a thread-safe memo, bounded in bytes, with counts."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from swift_grpo_ext.errors import DatasetRowError

T = TypeVar("T")
_KEEP_FAILURE = 60.0  # seconds


@dataclass
class StoreCounts:
    """Results computed so far, and taken from the store or from a thread that was computing them."""

    made: int = 0
    reused: int = 0
    held_bytes: int = 0


class PreparedImageCache:
    """Least-recently-used memo of expensive results, at most `limit` bytes; a larger one is returned, not
    held.

    Threads that ask for the same key at the same time wait for the first one: ms-swift encodes the
    completions of a group in parallel. A row that failed keeps failing for a minute, since ms-swift tries
    every row three times, and a URL without network takes its time to fail.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.counts = StoreCounts()
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._making: dict[Hashable, Future[Any]] = {}
        self._failed: dict[Hashable, tuple[DatasetRowError, float]] = {}

    def get(self, key: Hashable, make: Callable[[], T], size_of: Callable[[T], int]) -> T:
        """The result for a key, which names content and every option that the result depends on; computed if
        it is not held. An exception of `make` goes to every waiting thread.
        """
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                self.counts.reused += 1
                return self._held[key][0]
            self._forget_old_failures()
            if key in self._failed:
                raise self._failed[key][0].fresh()
            running = self._making.get(key)
            if running is None:
                mine = self._making[key] = Future()
            else:
                self.counts.reused += 1
        if running is not None:
            return running.result()
        return self._make(key, make, size_of, mine)

    def clear(self) -> None:
        """Drop everything that is held; the counts go on."""
        with self._lock:
            self._held.clear()
            self.counts.held_bytes = 0

    def _make(self, key: Hashable, make: Callable[[], T], size_of: Callable[[T], int], mine: Future[T]) -> T:
        try:
            result = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
                if isinstance(error, DatasetRowError):
                    self._keep_failure(key, error)
            mine.set_exception(error)
            raise
        with self._lock:
            del self._making[key]
            self.counts.made += 1
            self._hold(key, result, size_of(result))
        mine.set_result(result)
        return result

    def _keep_failure(self, key: Hashable, error: DatasetRowError) -> None:
        """Remember a failure, without its traceback: that would hold the bytes of the broken file."""
        self._failed[key] = (error.fresh(), time.monotonic() + _KEEP_FAILURE)

    def _forget_old_failures(self) -> None:
        while self._failed:
            oldest = next(iter(self._failed))
            if time.monotonic() < self._failed[oldest][1]:
                return
            del self._failed[oldest]

    def _hold(self, key: Hashable, result: object, size: int) -> None:
        if size > self.limit:
            return
        self._held[key] = (result, size)
        self.counts.held_bytes += size
        while self.counts.held_bytes > self.limit:
            _, (_, freed) = self._held.popitem(last=False)
            self.counts.held_bytes -= freed

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process starts empty: ms-swift pickles templates into workers."""
        return {"limit": self.limit}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(state["limit"])  # type: ignore[misc]

    def __deepcopy__(self, memo: dict[int, object]) -> PreparedImageCache:
        """Copies of a template share one store."""
        return self
