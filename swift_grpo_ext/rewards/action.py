"""One action on a screen, whatever its action space."""

from __future__ import annotations

from dataclasses import dataclass

from swift_grpo_ext.rewards.region import Region, pointed_at


@dataclass(frozen=True)
class Action:
    """One action on the screen."""

    kind: str  # ``click``, ``type``, ``scroll`` ... in one spelling
    target: Region | None = None  # where it is or starts: a point, or for a gold a box
    text: str = ""  # what is typed, the direction, the keys, the app, the status: "" if nothing
    end: Region | None = None  # where a drag or swipe ends
    seconds: float | None = None  # how long it waits
    unknown: tuple[str, ...] = ()  # names of arguments that are not known

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
