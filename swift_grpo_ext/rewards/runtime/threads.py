"""A limit that also holds for a coroutine that blocks its loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

GRACE = 1.0
"""Seconds that a coroutine has to end after it was cancelled."""


async def within(seconds: float, start: Callable[[], Coroutine[object, object, object]]) -> Any:
    """The result of a coroutine that runs in a thread of its own.

    The thread is a daemon: unlike one of an executor, it holds up neither the loop's end nor the process's.

    Args:
        seconds: The limit. A coroutine that awaits is cancelled at its end, one that blocks is left behind
            `GRACE` later.
        start: Makes the coroutine.

    Raises:
        TimeoutError: The limit is over.
    """
    found: Future[Any] = Future()

    def run() -> None:
        found.set_running_or_notify_cancel()
        try:
            found.set_result(asyncio.run(_limited(seconds, start)))
        except Exception as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True, name="reward").start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(found), seconds + GRACE)
    except asyncio.TimeoutError:
        raise TimeoutError(f"no scores within {seconds:g} s") from None


async def _limited(seconds: float, start: Callable[[], Coroutine[object, object, object]]) -> object:
    return await asyncio.wait_for(start(), seconds)
