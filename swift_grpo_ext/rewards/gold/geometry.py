"""Boxes ``(left, top, right, bottom)`` and points in continuous coordinates (no pixel is added)."""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar

from swift_grpo_ext.rewards.values.region import Place, pointed_at

_A = TypeVar("_A")
_B = TypeVar("_B")


def area(box: Place) -> float:
    """Area of a box, 0 for a line or a point."""
    return (box[2] - box[0]) * (box[3] - box[1])


def intersection(a: Place, b: Place) -> float:
    """Area that two boxes share."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0


def box_iou(a: Place, b: Place) -> float:
    """Intersection over union, 0..1; 0 if neither box has an area."""
    shared = intersection(a, b)
    union = area(a) + area(b) - shared
    return min(1.0, shared / union) if union > 0 else 0.0


def box_giou(a: Place, b: Place) -> float:
    """Generalised IoU, -1..1: IoU minus the share of the hull that neither box fills (arXiv 1902.09630)."""
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    if hull <= 0:
        return -1.0
    union = area(a) + area(b) - intersection(a, b)
    return max(-1.0, box_iou(a, b) - (hull - union) / hull)


def strictly_inside(place: Place, box: Place) -> bool:
    """True if the point, or the middle of a box, lies inside the box, not on its edge."""
    x, y = pointed_at(place)
    return box[0] < x < box[2] and box[1] < y < box[3]


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
    gains = [[gain(item, target) for target in gold] for item in predicted]
    pairs = best_assignment(gains)
    longer = max(len(predicted), len(gold))
    total = math.fsum(gains[row][column] for row, column in pairs)
    return (total + unmatched * (longer - len(pairs))) / longer
