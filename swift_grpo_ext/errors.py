"""Every error that this package raises on purpose: one line of what is wrong, where, and what fixes it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class SwiftGrpoExtError(Exception):
    """Base of the package's errors: the fault in one clause, the place it was found in, what fixes it."""

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what = what
        self.where = where
        self.fix = fix
        place = f" [{where}]" if where else ""
        cure = f" -> {fix}" if fix else ""
        super().__init__(f"swift-grpo-ext: {what}{place}{cure}")

    def fresh(self) -> Self:
        """The same error without a traceback, to be raised again: one raised twice keeps both tracebacks."""
        return copy(self)

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the keyword arguments across process boundaries (pools, ranks, workers)."""
        return partial(type(self), where=self.where, fix=self.fix), (self.what,)


def in_a_line(error: BaseException) -> str:
    """An exception's kind, and the first line of what it says."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


NEAR = 0.75  # similarity below which a name is not suggested: a bad guess is worse than none


def nearest(name: str, names: Iterable[str], cutoff: float = 0.0) -> str:
    """The known name most like another, for "did you mean"; empty if none reaches the cutoff (0: any)."""
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), "")


class SettingsError(SwiftGrpoExtError):
    """A ``SWIFT_GRPO_EXT_*`` variable is unknown or out of range."""


class EnvironmentMismatchError(SwiftGrpoExtError):
    """Installed packages are missing, out of range, or do not fit together."""


class UnknownPartError(SwiftGrpoExtError):
    """A part name that the package does not have."""


class DatasetRowError(SwiftGrpoExtError):
    """A dataset row that cannot be trained on."""


class RewardError(SwiftGrpoExtError):
    """A reward function broke its contract."""


class MissingExtraError(SwiftGrpoExtError):
    """An optional dependency is needed but not installed."""


class RefusedError(SwiftGrpoExtError):
    """A run that is known to crash, hang or learn nothing, stopped before it starts."""


class OutputFolderError(SwiftGrpoExtError):
    """A folder or file that a run of the host should have left is missing or damaged."""


class HostRunError(SwiftGrpoExtError):
    """A run of the host's command that failed."""


class RolloutError(SwiftGrpoExtError):
    """A generation that would hang or return something other than asked for."""


class DeadRunError(SwiftGrpoExtError):
    """A run that could not learn, stopped as ``SWIFT_GRPO_EXT_ON_DEAD=stop`` asks."""


class CheckpointError(SwiftGrpoExtError):
    """A checkpoint folder that lacks something, or is not what it is taken for."""
