"""Monitoring must not end a run: a part that fails is turned off."""

import functools
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from accelerate.utils import gather_object
from swift.utils import get_logger

from swift_grpo_ext.errors import in_a_line

PARTS: set[str] = set()  # names of all guarded methods, for tests

Call = ParamSpec("Call")
Result = TypeVar("Result")


class Guarded(Protocol):
    """An object that has a guard."""

    @property
    def guard(self) -> "Guard":
        """The run's guard."""


class Guard:
    """Runs one rank's monitoring. A part that raises is off for the rest of the run.

    Exceptions that are not errors (Ctrl-C) pass through.
    """

    def __init__(self, rank: int = 0) -> None:
        self._rank = rank
        self._why_off: dict[str, str] = {}

    def is_on(self, part: str) -> bool:
        """True while the part is on."""
        return part not in self._why_off

    def run(self, part: str, action: Callable[[], Result]) -> Result | None:
        """Result of the action; None where the part is off or fails."""
        if self.is_on(part):
            try:
                return action()
            except Exception as error:
                self.turn_off(part, error)
        return None

    def together(self, part: str, action: Callable[[], Result]) -> Result | None:
        """The same for a part in which ranks wait for each other: it is turned off on all ranks together.

        Every rank must call this; the action itself must not wait for other ranks.
        """
        if not self.is_on(part):
            return None
        result = self.run(part, action)
        for rank, why in enumerate(gather_object([self._why_off.get(part, "")])):
            if why:
                self.turn_off(part, f"rank {rank}: {why}")
        return result if self.is_on(part) else None

    def turn_off(self, part: str, reason: Exception | str) -> None:
        """Turn a part off; each rank says so itself: ms-swift's logger is silent on all but the first."""
        if not self.is_on(part):
            return
        why = reason if isinstance(reason, str) else _in_words(reason)
        self._why_off[part] = why
        text = f"swift-grpo-ext: {part} turned off, training is not affected: {why}"
        if self._rank == 0:
            get_logger().warning(text)
        else:
            print(f"{text} (rank {self._rank})", file=sys.stderr, flush=True)


Owner = TypeVar("Owner", bound=Guarded)
Method = Callable[Concatenate[Owner, Call], Result]


def watches(part: str) -> Callable[[Method[Owner, Call, Result]], Method[Owner, Call, Result | None]]:
    """Run a method under the `Guard` of its object: it returns None where its part is off or fails."""

    PARTS.add(part)

    def guarding(method: Method[Owner, Call, Result]) -> Method[Owner, Call, Result | None]:
        @functools.wraps(method)
        def guarded(owner: Owner, *args: Call.args, **kwargs: Call.kwargs) -> Result | None:
            return owner.guard.run(part, functools.partial(method, owner, *args, **kwargs))

        return guarded

    return guarding


def _in_words(error: Exception) -> str:
    """An error in one line, with its place in the code."""
    places = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""
    return in_a_line(error) + where
