"""A sign of life from a command that computes for long."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 10.0  # between two lines


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on standard error, every `SECONDS` while the context is open, what is done and for how long."""
    done = threading.Event()
    started = time.monotonic()

    def speak() -> None:
        while not done.wait(SECONDS):
            line = f"swift-grpo-ext: {what}, {time.monotonic() - started:.0f} s so far"
            print(line, file=sys.stderr, flush=True)

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
