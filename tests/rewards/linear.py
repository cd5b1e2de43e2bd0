"""Whether a call's time grows as its text does, whatever the machine's speed."""

import time
from collections.abc import Callable

FLOOR, GROWTH, ATTEMPTS = 0.05, 9.0, 5
"""Seconds below which nothing is compared; a text of four times the size takes 4 times as long when time
is linear and 16 times when it is quadratic; tries before a busy machine is no excuse."""


def seconds(call: Callable[[str], object], text: str) -> float:
    started = time.process_time()
    call(text)
    return time.process_time() - started


def assert_linear(call: Callable[[str], object], piece: str, size: int) -> None:
    """The least time of a flood of `size` characters against that of a quarter of it."""
    whole, quarter = (piece * (count // len(piece)) for count in (size, size // 4))
    large = small = float("inf")
    for _ in range(ATTEMPTS):
        large, small = min(large, seconds(call, whole)), min(small, seconds(call, quarter))
        if large < GROWTH * max(small, FLOOR):
            return
    raise AssertionError(f"{piece!r}: {small:.3f} s for {size // 4} characters, {large:.3f} s for {size}")
