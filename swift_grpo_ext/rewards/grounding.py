"""Visual grounding: boxes that cover the gold's, points that lie in them, and prompts for a segmenter."""

import json
from dataclasses import replace

from swift_grpo_ext.rewards.contract import Columns, Outcome, Unscorable, reward
from swift_grpo_ext.rewards.gold.frames import extent
from swift_grpo_ext.rewards.gold.geometry import box_giou, box_iou, strictly_inside
from swift_grpo_ext.rewards.gold.regions import (
    GOLD,
    OBJECTS,
    READS,
    Objects,
    Places,
    converted,
    gold_boxes,
    gold_places,
    gold_regions,
    matched,
    moved,
)
from swift_grpo_ext.rewards.values.region import Box, Point, Region, pointed_at


def written(region: Region, places: Places) -> dict[str, object]:
    """An object as an answer: Gemini's key in Gemini's order, else Qwen's."""
    fields: dict[str, object] = {"label": region.label} if region.label else {}
    if region.point is not None:
        fields = {"point_2d": written_point(region.point, places), **fields}
    if region.box is not None:
        left, top, right, bottom = region.box
        gemini = {"box_2d": [top, left, bottom, right]}
        fields = {**(gemini if places.order == "yxyx" else {"bbox_2d": list(region.box)}), **fields}
    return fields


def written_point(point: Point, places: Places) -> list[float]:
    """A point as an answer, in the order that the model answers in."""
    return [point[1], point[0]] if places.order == "yxyx" else list(point)


def gold_boxes_text(columns: Columns, *, places: Objects = OBJECTS, **_: object) -> str:
    """The gold as Qwen2.5-VL writes boxes, in the frame and the order that the model answers in."""
    listed = [written(replace(region, point=None), places) for region in gold_places(columns, "box", places)]
    return f"```json\n{json.dumps(listed, ensure_ascii=False)}\n```"


def _gold_points_text(columns: Columns, *, places: Objects = OBJECTS) -> str:
    points = map(pointed_at, gold_places(columns, "box", places))
    return json.dumps([written(Region(point=point), places) for point in points])


@reward(gold=GOLD, reads=READS, gold_text=gold_boxes_text)
def iou(
    completion: str,
    columns: Columns,
    *,
    places: Objects = OBJECTS,
) -> Outcome:
    """Intersection over union of the predicted with the gold boxes, 0..1.

    Predicted and gold boxes are paired one to one so that the total IoU is greatest; the score is that total
    over the number of predicted or gold boxes, whichever is greater. With one box each it is their IoU. A box
    whose corners come in another order is put in order; one without area scores 0. Several for one target are
    no answer.

    Gold: ``solution`` (or ``bbox``, ``boxes``, ``answer``): one box ``[x1, y1, x2, y2]``, a list of boxes, or
        text or JSON that holds them; or ms-swift's ``objects``.
    Raises:
        Unscorable: No gold box, a gold box without area, or a conversion between frames without
            ``image_sizes``.
    Rises with: The overlap of each pair; moving a box towards its partner never lowers it once they touch.
    Gaming:
        - Many boxes, so that one hits: every box without a partner lowers the mean
          (test_spam_of_boxes_lowers_the_score).
        - The same box again: the same (test_a_repeated_box_lowers_the_score).
        - A box in the thinking part: not read (test_boxes_in_the_thinking_part_are_not_read).
        - One box over the whole image: its IoU is the gold's share of the image
          (test_a_box_over_the_whole_image).
    Source: Jaccard index; Hungarian matching as in DETR (arXiv 2005.12872).
    Example:
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_iou")("<answer>[0, 0, 10, 10]</answer>", {"solution": [0, 0, 10, 20]})
        0.5
    """
    gold = gold_boxes(columns, places)
    return matched(completion, gold, "box", places, lambda region: region.box, box_iou)


@reward(low=-1.0, gold=GOLD, reads=READS, gold_text=gold_boxes_text)
def giou(completion: str, columns: Columns, *, places: Objects = OBJECTS) -> Outcome:
    """Generalised intersection over union of the predicted with the gold boxes, -1..1.

    Like `ext_iou`, but boxes that do not touch still tell near from far: IoU minus the share of the smallest
    enclosing box that neither fills. An answer without a box, and every box without a partner, is -1.

    Gold: As for `ext_iou`.
    Raises:
        Unscorable: No gold box, a gold box without area, or a conversion between frames without
            ``image_sizes``.
    Rises with: The overlap, and without overlap with nearness.
    Gaming:
        - Many boxes, so that one hits: every box without a partner counts -1
          (test_spam_of_boxes_lowers_the_score).
        - The same box again: the same (test_a_repeated_box_lowers_the_score).
    Source: Rezatofighi et al., arXiv 1902.09630.
    Example:
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_giou")("<answer>[0, 0, 10, 10]</answer>", {"solution": [0, 30, 10, 40]})
        -0.5
    """
    gold = gold_boxes(columns, places)
    return matched(completion, gold, "box", places, lambda region: region.box, box_giou, worst=-1.0)


@reward(gold=GOLD, reads=READS, gold_text=_gold_points_text)
def point_in_box(completion: str, columns: Columns, *, places: Objects = OBJECTS) -> Outcome:
    """The share of points that lie strictly inside their gold box, 0..1.

    Points and gold boxes are paired one to one for the most hits; the score is the hits over the number of
    points or boxes, whichever is greater. A predicted box stands for its middle.

    Gold: ``solution`` (or ``bbox``, ``boxes``, ``answer``): the box of the target, or a list of boxes; or
        ms-swift's ``objects``.
    Raises:
        Unscorable: No gold box, a gold box without area, or a conversion between frames without
            ``image_sizes``.
    Rises with: Points inside their boxes.
    Gaming:
        - Many points, so that one hits: each one beyond a hit lowers the share
          (test_spam_of_points_lowers_the_score).
        - A point on the edge of the box: outside (test_the_edge_is_outside).
    Source: The click accuracy of ScreenSpot (arXiv 2401.10935).
    Example:
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_point_in_box")("(50, 60)", {"solution": [10, 20, 110, 220]})
        1.0
    """
    gold = gold_boxes(columns, places)
    return matched(completion, gold, "both", places, pointed_at, strictly_inside)


# The paper's 10 and 30 pixels on images of 840 x 840, as fractions of the side.
MAX_BOX_L1 = 10 / 840
MAX_POINT_L1 = 30 / 840


def _pair_score(predicted: Region, gold: Region) -> float:
    """Share of the three criteria that a predicted object meets against a gold one."""
    box = predicted.box
    wanted = gold.box
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
    """The gold objects in fractions of the image.

    Raises:
        Unscorable: A gold object lacks its box or its point.
    """
    regions, source = gold_regions(columns, GOLD, "both", places)
    for region in regions:
        if region.box is None or region.point is None:
            raise Unscorable("each gold object needs bbox_2d and point_2d")
    return converted(regions, source, "norm1", columns, places)


def _gold_objects_text(columns: Columns, *, places: Objects = OBJECTS) -> str:
    gold = [
        moved(region, "norm1", places.frame, columns, places.of_image(region))
        for region in _gold_objects(columns, places)
    ]
    return json.dumps([written(region, places) for region in gold], ensure_ascii=False)


@reward(gold=GOLD, reads=READS, gold_text=_gold_objects_text)
def segmentation_points(completion: str, columns: Columns, *, places: Objects = OBJECTS) -> Outcome:
    """Boxes and points for prompting a segmentation model (Seg-Zero, VisionReasoner), 0..1.

    Each pair of a predicted and a gold object earns a third for each of: IoU above .5; mean L1 distance of
    the boxes below 10/840 of the image; point within 30/840 of the gold point and strictly inside the
    predicted box. Pairs are matched one to one for the greatest total, over the number of predicted or gold
    objects, whichever is greater.

    Gold: ``solution`` (or ``answer``): ``[{"bbox_2d": [x1, y1, x2, y2], "point_2d": [x, y]}, ...]``.
    Raises:
        Unscorable: No gold objects, one without box or point, or pixel frames without ``image_sizes``.
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
    gold = _gold_objects(columns, places)
    image = places.image_index
    extent(places.frame, columns, image)  # unscorable for every completion alike

    def in_fractions(region: Region) -> Region:
        return moved(region, places.frame, "norm1", columns, image)

    return matched(completion, gold, "both", places, in_fractions, _pair_score)
