"""Ctrl-C, SIGTERM, or the end of the launcher: finish the step, save, end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from swift_grpo_ext.watch.launcher import Launcher

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class EndRequest:
    """Remembers that this process was asked to end; a second time it ends at once.

    The ranks tell each other at the end of each step, so all of them save the same step and end together.

    Attributes:
        reason: A signal's name, or what else asks to end; empty if nothing does.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._before: dict[int, Any] = {}
        self._launcher = Launcher()
        self._wakeup = -1

    def listen(self) -> None:
        """Take the signals over. Only the main thread may; in others nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._take)
        if self._launcher.is_parent:
            self._hold_the_launcher_on_ctrl_c()

    def leave(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        if self._wakeup >= 0:
            os.close(signal.set_wakeup_fd(-1))  # which ends the thread that reads the other end
            self._wakeup = -1

    def look_at_launcher(self) -> None:
        """If the launcher has ended, so does this process. Any thread may call it, now and then."""
        if not self.reason and self._launcher.gone:
            self._ask("the end of the swift command")

    def _hold_the_launcher_on_ctrl_c(self) -> None:
        """Have a thread stop the launcher: the main thread may be in a long call when the signal comes."""
        reading, self._wakeup = os.pipe()
        os.set_blocking(self._wakeup, False)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)

        def watch() -> None:
            with os.fdopen(reading, "rb", buffering=0) as pipe:
                if any(number == signal.SIGINT for (number,) in iter(lambda: pipe.read(1), b"")):
                    self._launcher.hold()

        threading.Thread(target=watch, name="swift-grpo-ext Ctrl-C", daemon=True).start()

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
