"""One object: a box ``(left, top, right, bottom)`` or a point, in continuous coordinates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from swift_grpo_ext.rewards.contract import Unread

Point: TypeAlias = tuple[float, float]
Place: TypeAlias = tuple[float, ...]  # a box (left, top, right, bottom), or a point
Order: TypeAlias = Literal["xyxy", "xywh", "yxyx"]  # of four numbers; under yxyx, points are y, x
OrderOf: TypeAlias = Callable[[str], Order]  # the order of unnamed numbers under a key

MAX_COORDINATE = 1e7


def as_corners(key: str) -> Order:
    """Corners, whatever the key."""
    return "xyxy"


@dataclass(frozen=True)
class Region:
    """One object of an answer or a gold."""

    place: Place
    label: str = ""
    reordered: bool = field(default=False, compare=False)  # the corners stood in another order
    image: int | None = field(default=None, compare=False)  # index of the image that it names

    @property
    def is_box(self) -> bool:
        """True for a box, False for a point."""
        return len(self.place) == 4


def pointed_at(place: Place) -> Point:
    """The point of a place: itself, or the middle of a box."""
    return (place[0] + place[-2]) / 2, (place[1] + place[-1]) / 2


def region_of_numbers(numbers: Sequence[float], order: Order = "xyxy") -> Region:
    """Four numbers as a box, two as a point.

    Raises:
        Unread: One of them is not finite, or too large.
    """
    if not all(-MAX_COORDINATE <= number <= MAX_COORDINATE for number in numbers):
        raise Unread(f"a coordinate that is not a finite number below {MAX_COORDINATE:g}")
    left, top, right, bottom = map(float, (*numbers[:2], *numbers[-2:]))
    if order == "yxyx":
        left, top, right, bottom = top, left, bottom, right
    if len(numbers) == 2:
        return Region((left, top))
    if order == "xywh":
        right += left
        bottom += top
    box = (min(left, right), min(top, bottom), max(left, right), max(top, bottom))
    return Region(box, reordered=box != (left, top, right, bottom))
