"""Ctrl-C and SIGTERM: finish the step, save, end."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class EndRequest:
    """Remembers that this process was asked to end; a second time it ends at once.

    The ranks tell each other at the end of each step, so all of them save the same step and end together.
    """

    def __init__(self) -> None:
        self.signal = ""
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Take the signals over. Only the main thread may; in others nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._take)

    def leave(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _take(self, number: int, frame: FrameType | None) -> None:
        del frame
        name = signal.Signals(number).name
        if self.signal:
            self.leave()
            signal.raise_signal(number)
            return
        self.signal = name
        print(
            f"swift-grpo-ext: {name}: this step is finished and saved, then the run ends; once more "
            "ends it now",
            file=sys.stderr,
            flush=True,
        )
