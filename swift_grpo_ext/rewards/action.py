"""One action on a screen, whatever its action space."""

from __future__ import annotations

from dataclasses import dataclass

from swift_grpo_ext.rewards.region import Region, pointed_at


@dataclass(frozen=True)
class Action:
    """One action on the screen.

    Attributes:
        kind: ``click``, ``type``, ``scroll`` ... in one spelling.
        target: Where, if it has a place: a point, or for a gold a box. Where a drag or swipe starts.
        text: What is typed, the direction, the keys, the app, the status: "" if nothing.
        end: Where a drag or swipe ends.
        seconds: How long it waits.
        unknown: Names of arguments that are not known.
    """

    kind: str
    target: Region | None = None
    text: str = ""
    end: Region | None = None
    seconds: float | None = None
    unknown: tuple[str, ...] = ()

    @property
    def towards(self) -> str:
        """The direction of a swipe that is given by its two ends, "" for any other action."""
        if self.target is None or self.end is None or self.text:
            return ""
        (x1, y1), (x2, y2) = pointed_at(self.target), pointed_at(self.end)
        right, down = x2 - x1, y2 - y1
        if abs(right) > abs(down):
            return "right" if right > 0 else "left"
        return "down" if down > 0 else "up" if down < 0 else ""
