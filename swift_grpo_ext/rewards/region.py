"""One box or point that was read, and the order that its numbers were written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from swift_grpo_ext.rewards.geometry import Box, Point, centre

Order: TypeAlias = Literal["xyxy", "xywh", "yxyx"]
ORDERS: tuple[Order, ...] = get_args(Order)
MAX_COORDINATE = 1e7


@dataclass(frozen=True)
class Convention:
    """How lists of numbers without names are written."""

    order: Order = "xyxy"  # of four numbers; under yxyx, points are y, x
    gold: bool = False  # of a data set; in answers ``bbox_2d`` is Qwen's and always holds corners
    box_2d: Order | None = None  # order under the key ``box_2d``, if it is another one

    def under(self, key: str) -> Order:
        """The order of a list under this key."""
        if key == "bbox_2d" and not self.gold and self.order == "xywh":
            return "xyxy"
        return (self.box_2d or self.order) if key == "box_2d" else self.order


ANSWER = Convention()


@dataclass(frozen=True)
class Region:
    """One object of an answer. Coordinates that are no finite numbers become a box or point at the origin."""

    box: Box | None = None  # (left, top, right, bottom) with ordered corners, or None
    point: Point | None = None  # (x, y), or None
    label: str = ""  # as written, "" if none
    confidence: float | None = None  # as written if it is a number, else None
    broken: bool = field(default=False, compare=False)  # whether a coordinate was no finite number
    reordered: bool = field(default=False, compare=False)  # whether the corners stood in another order
    image: int | None = field(default=None, compare=False)  # of the image that it says it is in


def pointed_at(region: Region) -> Point:
    """The point of a region: its own, or the middle of its box."""
    if region.point is not None:
        return region.point
    assert region.box is not None
    return centre(region.box)


def region_of_numbers(
    numbers: Sequence[Any],
    label: str = "",
    convention: Convention = ANSWER,
    key: str = "",
    named: bool = False,
) -> Region:
    """Four numbers as a box, two as a point.

    `named`: their names say what each is, so that no order applies. `key` is the one that they stand under.
    """
    for number in numbers:
        if not -MAX_COORDINATE <= number <= MAX_COORDINATE:
            zeros = (0.0,) * len(numbers)
            at = {"box": zeros} if len(numbers) == 4 else {"point": zeros}
            return Region(**at, label=label, broken=True)  # type: ignore[arg-type]
    order = "xyxy" if named else convention.under(key)
    if len(numbers) == 2:
        x, y = numbers
        return Region(point=(float(y), float(x)) if order == "yxyx" else (float(x), float(y)), label=label)
    a, b, c, d = map(float, numbers)
    if order == "yxyx":
        a, b, c, d = b, a, d, c
    elif order == "xywh":
        c, d = a + c, b + d
    ordered = (min(a, c), min(b, d), max(a, c), max(b, d))
    return Region(box=ordered, label=label, reordered=ordered != (a, b, c, d))
