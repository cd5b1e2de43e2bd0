"""Pointing at things, one or several."""

from __future__ import annotations

import json

from swift_grpo_ext.rewards.answer import extract_answer
from swift_grpo_ext.rewards.contract import Columns, reward
from swift_grpo_ext.rewards.geometry import Box, Point, matched_mean, strictly_inside
from swift_grpo_ext.rewards.gold_regions import GOLD, OBJECTS, READS, Objects, Places, gold_places
from swift_grpo_ext.rewards.nothing import says_nothing
from swift_grpo_ext.rewards.region import pointed_at
from swift_grpo_ext.rewards.regions import parse_regions


def _gold_points_text(columns: Columns, *, places: Objects = OBJECTS, **_: object) -> str:
    points = map(pointed_at, gold_places(columns, "box", places))
    return json.dumps([{"point_2d": written_point(point, places)} for point in points])


def written_point(point: Point, places: Places) -> list[float]:
    """A point as an answer, in the order that the model answers in."""
    return [point[1], point[0]] if places.order == "yxyx" else list(point)


@reward(gold=GOLD, reads=READS, gold_text=_gold_points_text)
def point_in_box(completion: str, columns: Columns, *, places: Objects = OBJECTS) -> float:
    """The share of points that lie strictly inside their gold box, 0..1.

    Points and gold boxes are paired one to one for the most hits; the score is the hits over the number of
    points or boxes, whichever is greater. A predicted box stands for its middle.

    Gold:
        ``solution`` (or ``bbox``, ``boxes``, ``answer``): the box of the target, or a list of boxes; or
        ms-swift's ``objects``.

    None:
        No gold box, a gold box without area, or a conversion between frames without ``image_sizes``.

    Rises with:
        Points inside their boxes.

    Gaming:
        - Many points, so that one hits: each one beyond a hit lowers the share
          (test_spam_of_points_lowers_the_score).
        - A point on the edge of the box: outside (test_the_edge_is_outside).

    Frame:
        Declared by `frame` and `gold_frame`; with both the same, no size is needed.

    Source:
        The click accuracy of ScreenSpot (arXiv 2401.10935).

    Example:
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_point_in_box")("(50, 60)", {"solution": [10, 20, 110, 220]})
        1.0
    """
    gold = [region.box for region in gold_places(columns, "box", places) if region.box is not None]
    answer = extract_answer(completion)
    if not gold:
        return float(says_nothing(answer))
    points = [pointed_at(region) for region in parse_regions(answer or "", "both", places.answers)]
    return matched_mean(points, gold, _hit) if points else 0.0


def _hit(point: Point, box: Box) -> float:
    return float(strictly_inside(point, box))
