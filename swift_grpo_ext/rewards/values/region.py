"""One object: a box ``(left, top, right, bottom)`` or a point, in continuous coordinates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

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
    """One object of an answer. Coordinates that are no finite numbers become a box or point at the origin."""

    box: Box | None = None
    point: Point | None = None
    label: str = ""
    confidence: float | None = None
    broken: bool = field(default=False, compare=False)  # a coordinate was no finite number
    reordered: bool = field(default=False, compare=False)  # the corners stood in another order
    image: int | None = field(default=None, compare=False)  # number of the image that it says it is in


def pointed_at(region: Region) -> Point:
    """The point of a region: its own, or the middle of its box."""
    if region.point is not None:
        return region.point
    assert region.box is not None
    left, top, right, bottom = region.box
    return (left + right) / 2, (top + bottom) / 2


def region_of_numbers(
    numbers: Sequence[float],
    label: str = "",
    order_of: OrderOf = as_corners,
    key: str = "",
    named: bool = False,
) -> Region:
    """Four numbers (under `key`) as a box, two as a point; no order applies to numbers that are `named`."""
    if not all(-MAX_COORDINATE <= number <= MAX_COORDINATE for number in numbers):
        at_origin = Region(box=(0.0, 0.0, 0.0, 0.0)) if len(numbers) == 4 else Region(point=(0.0, 0.0))
        return replace(at_origin, label=label, broken=True)
    order = "xyxy" if named else order_of(key)
    if len(numbers) == 2:
        x, y = map(float, numbers)
        return Region(point=(y, x) if order == "yxyx" else (x, y), label=label)
    a, b, c, d = map(float, numbers)
    if order == "yxyx":
        a, b, c, d = b, a, d, c
    elif order == "xywh":
        c = a + c
        d = b + d
    ordered = (min(a, c), min(b, d), max(a, c), max(b, d))
    return Region(box=ordered, label=label, reordered=ordered != (a, b, c, d))
