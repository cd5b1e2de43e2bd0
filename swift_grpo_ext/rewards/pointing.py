"""Pointing at things, one or several."""

from __future__ import annotations

import json
from typing import Any

from swift_grpo_ext.rewards.answer import extract_answer
from swift_grpo_ext.rewards.contract import Columns, reward
from swift_grpo_ext.rewards.frames import SIZES_COLUMN, Frame
from swift_grpo_ext.rewards.geometry import Box, Point, centre, matched_mean, strictly_inside
from swift_grpo_ext.rewards.grounding import GOLD, gold_boxes
from swift_grpo_ext.rewards.regions import Region, parse_regions


def pointed_at(region: Region) -> Point:
    """The point of a region: its own, or the middle of its box."""
    if region.point is not None:
        return region.point
    assert region.box is not None
    return centre(region.box)


def _gold_points_text(
    columns: Columns,
    *,
    frame: Frame = "pixel_resized",
    gold_frame: Frame | None = None,
    image_index: int = 0,
    **_: Any,
) -> str:
    boxes = gold_boxes(columns, frame, gold_frame, image_index)
    return json.dumps([{"point_2d": list(centre(box))} for box, _region in boxes])


@reward(gold=GOLD, reads=(SIZES_COLUMN,), gold_text=_gold_points_text)
def point_in_box(
    completion: str,
    columns: Columns,
    *,
    frame: Frame = "pixel_resized",
    gold_frame: Frame | None = None,
    image_index: int = 0,
) -> float:
    """The share of points that lie strictly inside their gold box, 0..1.

    Points and gold boxes are paired one to one for the most hits; the score is the hits over the number of
    points or boxes, whichever is greater. A predicted box stands for its middle.

    Args:
        frame: Coordinate frame that the model answers in.
        gold_frame: Coordinate frame of the gold column; the same as `frame` if not given.
        image_index: Which of the row's images the points lie in, from 0.

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
    """
    gold = [box for box, _region in gold_boxes(columns, frame, gold_frame, image_index)]
    points = [pointed_at(region) for region in parse_regions(extract_answer(completion) or "", "both")]
    return matched_mean(points, gold, _hit) if points else 0.0


def _hit(point: Point, box: Box) -> float:
    return float(strictly_inside(point, box))
