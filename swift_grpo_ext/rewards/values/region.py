"""One object: a box ``(left, top, right, bottom)`` or a point, in continuous coordinates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from swift_grpo_ext.rewards.contract import Unread

Box: TypeAlias = tuple[float, float, float, float]
Point: TypeAlias = tuple[float, float]
Order: TypeAlias = Literal["xyxy", "xywh", "yxyx"]  # of four numbers; under yxyx, points are y, x
OrderOf: TypeAlias = Callable[[str], Order]  # of numbers without names, under a key

MAX_COORDINATE = 1e7


def as_corners(key: str) -> Order:
    """Corners, whatever the key."""
    return "xyxy"


@dataclass(frozen=True)
class Region:
    """One object of an answer or a gold."""

    box: Box | None = None
    point: Point | None = None
    label: str = ""
    reordered: bool = field(default=False, compare=False)  # the corners stood in another order
    image: int | None = field(default=None, compare=False)  # number of the image that it says it is in


def pointed_at(region: Region) -> Point:
    """The point of a region: its own, or the middle of its box."""
    if region.point is not None:
        return region.point
    assert region.box is not None
    left, top, right, bottom = region.box
    return (left + right) / 2, (top + bottom) / 2


def region_of_numbers(numbers: Sequence[float], label: str = "", order: Order = "xyxy") -> Region:
    """Four numbers as a box, two as a point.

    Raises:
        Unread: One of them is no finite number.
    """
    if not all(-MAX_COORDINATE <= number <= MAX_COORDINATE for number in numbers):
        raise Unread(f"a coordinate that is no finite number below {MAX_COORDINATE:g}")
    numbers = [float(number) for number in numbers]
    if order == "yxyx":
        numbers = [numbers[axis ^ 1] for axis in range(len(numbers))]
    if len(numbers) == 2:
        return Region(point=(numbers[0], numbers[1]), label=label)
    left, top, right, bottom = numbers
    if order == "xywh":
        right += left
        bottom += top
    box = (min(left, right), min(top, bottom), max(left, right), max(top, bottom))
    return Region(box=box, label=label, reordered=box != (left, top, right, bottom))
