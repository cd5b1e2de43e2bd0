"""Boxes ``(left, top, right, bottom)`` and points in continuous coordinates (no pixel is added)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Box: TypeAlias = tuple[float, float, float, float]
Point: TypeAlias = tuple[float, float]
Order: TypeAlias = Literal["xyxy", "xywh", "yxyx"]  # of four numbers; under yxyx, points are y, x
OrderOf: TypeAlias = Callable[[str], Order]  # of numbers without names, under a key
MAX_COORDINATE = 1e7
_A = TypeVar("_A")
_B = TypeVar("_B")


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
        c, d = a + c, b + d
    ordered = (min(a, c), min(b, d), max(a, c), max(b, d))
    return Region(box=ordered, label=label, reordered=ordered != (a, b, c, d))


def area(box: Box) -> float:
    """Area of a box, 0 for a line or a point."""
    return (box[2] - box[0]) * (box[3] - box[1])


def intersection(a: Box, b: Box) -> float:
    """Area that two boxes share."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0


def box_iou(a: Box, b: Box) -> float:
    """Intersection over union, 0..1; 0 if both boxes have no area."""
    shared = intersection(a, b)
    union = area(a) + area(b) - shared
    return min(1.0, shared / union) if union > 0 else 0.0


def iou_matrix(boxes: Sequence[Box], others: Sequence[Box]) -> NDArray[np.float64]:
    """`box_iou` of every pair: shape (boxes, others)."""
    import numpy as np

    a, b = np.array(boxes, dtype=float)[:, None], np.array(others, dtype=float)[None]
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    shared = sides.clip(min=0).prod(axis=-1)
    areas = [(one[..., 2:] - one[..., :2]).prod(axis=-1) for one in (a, b)]
    union = areas[0] + areas[1] - shared
    matrix: NDArray[np.float64] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return matrix.clip(max=1.0)


def box_giou(a: Box, b: Box) -> float:
    """Generalised IoU, -1..1: IoU minus the share of the hull that neither box fills (arXiv 1902.09630)."""
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    if hull <= 0:
        return -1.0
    union = area(a) + area(b) - intersection(a, b)
    return max(-1.0, box_iou(a, b) - (hull - union) / hull)


def strictly_inside(point: Point, box: Box) -> bool:
    """The point lies inside the box, not on its edge."""
    return box[0] < point[0] < box[2] and box[1] < point[1] < box[3]


def best_assignment(gains: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """The one-to-one pairs (row, column) with the greatest total of finite gains (Hungarian method)."""
    if not gains or not gains[0]:
        return []
    if len(gains) == 1 or len(gains[0]) == 1:
        return [
            max(product(range(len(gains)), range(len(gains[0]))), key=lambda pair: gains[pair[0]][pair[1]])
        ]
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(gains, maximize=True)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def matched_mean(
    predicted: Sequence[_A], gold: Sequence[_B], gain: Callable[[_A, _B], float], unmatched: float = 0.0
) -> float:
    """Mean gain of the best one-to-one matching over the longer list, `unmatched` without a partner."""
    gains = [[gain(one, other) for other in gold] for one in predicted]
    pairs = best_assignment(gains)
    longer = max(len(predicted), len(gold))
    total = math.fsum(gains[row][column] for row, column in pairs)
    return (total + unmatched * (longer - len(pairs))) / longer
