"""Boxes and points that prompt a segmentation model."""

from __future__ import annotations

import json

from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.frames import extent
from swift_grpo_ext.rewards.geometry import Box, Point, Region, box_iou, strictly_inside
from swift_grpo_ext.rewards.gold_regions import (
    GOLD,
    OBJECTS,
    READS,
    Objects,
    Places,
    converted,
    gold_regions,
    matched,
    moved,
)
from swift_grpo_ext.rewards.grounding import written_box, written_point

# The paper's 10 and 30 pixels on images of 840 x 840, as fractions of the side.
MAX_BOX_L1 = 10 / 840
MAX_POINT_L1 = 30 / 840


def _pair_score(predicted: Region, gold: Region) -> float:
    """Share of the three criteria that a predicted object meets against a gold one."""
    box, wanted = predicted.box, gold.box
    if box is None or wanted is None:
        return 0.0
    met = (box_iou(box, wanted) > 0.5) + (_mean_l1(box, wanted) < MAX_BOX_L1)
    if predicted.point is not None and gold.point is not None:
        near = _mean_l1(predicted.point, gold.point) < MAX_POINT_L1
        met += near and strictly_inside(predicted.point, box)
    return met / 3


def _mean_l1(one: Box | Point, other: Box | Point) -> float:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


def _gold_objects(columns: Columns, places: Places) -> list[Region]:
    """The gold objects in fractions of the image."""
    regions, source = gold_regions(columns, GOLD, "both", places)
    for region in regions:
        if region.box is None or region.point is None:
            raise Unscorable("each gold object needs bbox_2d and point_2d")
    return converted(regions, source, "norm1", columns, places)


def _gold_objects_text(columns: Columns, *, places: Objects = OBJECTS) -> str:
    written = []
    for region in _gold_objects(columns, places):
        there = moved(region, "norm1", places.frame, columns, places.of_image(region))
        assert there.box is not None
        assert there.point is not None
        written.append(written_box(there.box, places) | {"point_2d": written_point(there.point, places)})
    return json.dumps(written)


@reward(gold=GOLD, reads=READS, gold_text=_gold_objects_text)
def segmentation_points(completion: str, columns: Columns, *, places: Objects = OBJECTS) -> float:
    """Boxes and points for prompting a segmentation model (Seg-Zero, VisionReasoner), 0..1.

    Each pair of a predicted and a gold object earns a third for each of: IoU above .5; mean L1 distance of
    the boxes below 10/840 of the image; point within 30/840 of the gold point and strictly inside the
    predicted box. Pairs are matched one to one for the greatest total, over the number of predicted or gold
    objects, whichever is greater.

    Gold: ``solution`` (or ``answer``): ``[{"bbox_2d": [x1, y1, x2, y2], "point_2d": [x, y]}, ...]``.
    None: No gold objects, one without box or point, or pixel frames without ``image_sizes``.
    Rises with: The number of criteria met.
    Gaming:
        - Many objects: each one beyond a pair lowers the mean (test_spam_of_objects_lowers_the_score); more
          than 300 are no answer (test_more_objects_than_the_cap_are_no_answer).
    Frame: Declared by `frame` and `gold_frame`; both are taken to fractions of the image, so that the
        distances do not depend on its size.
    Source: Seg-Zero (arXiv 2503.06520) and VisionReasoner (arXiv 2505.12081), whose thresholds are in pixels
        of an 840 x 840 image.
    Example:
        >>> from swift_grpo_ext import get_reward
        >>> gold = [{"bbox_2d": [10, 10, 90, 90], "point_2d": [50, 50]}]
        >>> row = {"solution": gold, "image_sizes": [{"original": [100, 100], "resized": [100, 100]}]}
        >>> answer = '[{"bbox_2d": [10, 10, 90, 90], "point_2d": [50, 50]}]'
        >>> get_reward("ext_segmentation_points")(answer, row)
        1.0
    """
    gold, image = _gold_objects(columns, places), places.image_index
    extent(places.frame, columns, image)  # unscorable for every completion alike

    def in_fractions(region: Region) -> Region:
        return moved(region, places.frame, "norm1", columns, image)

    return matched(completion, gold, "both", places, in_fractions, _pair_score)
