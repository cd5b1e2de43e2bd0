"""Ctrl-C, SIGTERM, or the end of the launcher: finish the step, save, end."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from functools import partial
from types import FrameType
from typing import Any

from swift_grpo_ext.watch.launcher import Launcher
from swift_grpo_ext.watch.terminal import Foreground

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class EndRequest:
    """Remembers that this process was asked to end; a second time it ends at once.

    The ranks tell each other at the end of each step, so all of them save the same step and end together.

    The command ``swift`` would leave no time for that: on Ctrl-C it kills the training process after a
    quarter of a second. So this process takes the terminal's Ctrl-C for itself, and hands it on as it exits.

    Attributes:
        reason: A signal's name, or what else asks to end; empty if nothing does.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._before: dict[int, Any] = {}
        self._foreground = Foreground()
        self._launcher = Launcher()
        if self._launcher.is_parent:  # as early as this, so that it is among the last things at exit
            atexit.register(partial(self._foreground.give_back, interrupt=True))

    def listen(self) -> None:
        """Take the signals over. Only the main thread may; in others nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._take)
        if self._launcher.is_parent:
            self._foreground.take()

    def leave(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        if self.reason != signal.SIGINT.name:
            self._foreground.give_back()

    def look_at_launcher(self) -> None:
        """If the launcher has ended, so does this process. Any thread may call it, now and then."""
        if not self.reason and self._launcher.gone:
            self._ask("the end of the swift command")

    def _take(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.reason:
            self.leave()
            signal.raise_signal(number)
            return
        self._ask(signal.Signals(number).name)

    def _ask(self, reason: str) -> None:
        self.reason = reason
        _say(
            f"swift-grpo-ext: {reason}: this step is finished and saved, then the run ends; once more "
            "ends it now\n"
        )


def _say(text: str) -> None:
    """Write to stderr, whatever a signal has interrupted; nobody may listen any more."""
    try:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode())
    except (OSError, ValueError):
        return
