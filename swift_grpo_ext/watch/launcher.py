"""The command ``swift``: it starts the training process and waits for it, but may end before it."""

from __future__ import annotations

import atexit
from contextlib import suppress
from pathlib import Path

import psutil


class Launcher:
    """The processes between this one and the command ``swift`` that it was started by, if it was.

    On SIGTERM the command ends without a word to the training process, which then trains on unseen; on
    Ctrl-C it kills ``torchrun``, with the same effect for its ranks.
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
    try:
        parents = psutil.Process().parents()[:2]  # the command itself, or torchrun and the command
        for number, process in enumerate(parents, start=1):
            if _is_swift(process.cmdline()):
                return parents[:number]
    except psutil.Error:  # of another user, or ended just now
        pass
    return []


def _is_swift(words: list[str]) -> bool:
    return any(
        Path(word).name == "swift" or word.replace("/", ".").removesuffix(".py").endswith("swift.cli.main")
        for word in words[:3]
    )


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
