"""Ctrl-C for the training process alone, not for the command that waits for it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

# The launcher's shell would not notice that only this group is stopped, so Ctrl-Z does nothing.
_IGNORED = (signal.SIGTTOU, signal.SIGTSTP)


class Foreground:
    """Makes this process's own group the one that the terminal sends its signals to, as a shell does.

    Nothing happens without a terminal, in the background, or where this process leads its group already.
    """

    def __init__(self) -> None:
        self._terminal: int | None = None
        self._group = 0
        self._handlers: dict[int, Any] = {}

    def take(self) -> None:
        """Become the group in the foreground."""
        group = os.getpgrp()
        if group == os.getpid():
            return
        try:
            terminal = os.open("/dev/tty", os.O_RDWR)
        except OSError:
            return
        self._handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _IGNORED}
        self._terminal, self._group = terminal, group
        try:
            if os.tcgetpgrp(terminal) != group:
                self._forget()
                return
            os.setpgid(0, 0)
            os.tcsetpgrp(terminal, os.getpgrp())
        except OSError:
            self._forget()

    def give_back(self, *, interrupt: bool = False) -> None:
        """Hand the terminal to the group that had it.

        Args:
            interrupt: Send that group the SIGINT that it would have had by itself, so that a script goes no
                further. The command ``swift`` then kills this process within a quarter of a second.
        """
        if self._terminal is None:
            return
        group = self._group
        with suppress(OSError):  # the terminal or the group is gone
            os.tcsetpgrp(self._terminal, group)
            if not interrupt:
                os.setpgid(0, group)
        self._forget()
        if interrupt:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGINT)

    def _forget(self) -> None:
        assert self._terminal is not None
        os.close(self._terminal)
        self._terminal = None
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
