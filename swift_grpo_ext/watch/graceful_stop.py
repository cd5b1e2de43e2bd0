"""Ctrl-C, SIGTERM, or the end of the command ``swift``: finish the step, save, end."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class EndRequest:
    """Remembers that this process was asked to end; a second time it ends at once.

    The ranks tell each other at the end of each step, so all of them save the same step and end together.
    """

    def __init__(self) -> None:
        self.reason = ""  # a signal's name, or what else asks to end; empty if nothing does
        self._before: dict[int, signal._HANDLER] = {}
        self._launcher = _Launcher()
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

    def _take(self, number: int, _frame: object) -> None:
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
    with suppress(OSError, ValueError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode())


class _Launcher:
    """The processes from this one up to the command ``swift`` that it was started by, if it was.

    On SIGTERM the command ends without a word to the training process, which trains on unseen; on Ctrl-C it
    kills ``torchrun``, with the same effect for its ranks.
    """

    def __init__(self) -> None:
        self._above = _up_to_swift()

    @property
    def is_parent(self) -> bool:
        """There is nothing between the command and this process."""
        return len(self._above) == 1

    def hold(self) -> None:
        """Stop the command until this process exits.

        On Ctrl-C it would kill the training process after a quarter of a second, before a step is saved. A
        shell may report the command as stopped meanwhile; ``fg`` lets it go on, which ends the run at once.
        """
        with suppress(psutil.Error):
            self._above[0].suspend()
            atexit.register(self._let_go)

    def _let_go(self) -> None:
        with suppress(psutil.Error):
            self._above[0].resume()

    @property
    def gone(self) -> bool:
        """The command, or what it started on the way to this process, has ended."""
        return not all(map(_lives, self._above))


def _up_to_swift() -> list[psutil.Process]:
    """Parents of this process up to the command, which is the last; empty if there is no such command."""
    with suppress(psutil.Error):  # of another user, or ended just now
        parents = psutil.Process().parents()[:2]  # the command itself, or torchrun and the command
        for number, process in enumerate(parents, start=1):
            if _is_swift(process.cmdline()):
                return parents[:number]
    return []


def _is_swift(words: list[str]) -> bool:
    return any(
        Path(word).name == "swift" or word.replace("/", ".").removesuffix(".py").endswith("swift.cli.main")
        for word in words[:3]
    )


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
