"""Visual grounding: boxes that cover the gold's, and points that lie in them."""

import json

from swift_grpo_ext.rewards.contract import Columns, Outcome, reward
from swift_grpo_ext.rewards.gold.geometry import box_giou, box_iou, strictly_inside
from swift_grpo_ext.rewards.gold.regions import (
    GOLD,
    OBJECTS,
    READS,
    Objects,
    Places,
    gold_boxes,
    gold_places,
    matched,
)
from swift_grpo_ext.rewards.values.region import Place, Region, pointed_at


def written(region: Region, places: Places) -> dict[str, object]:
    """An object as an answer, under Qwen's keys."""
    label = {"label": region.label} if region.label else {}
    return {"bbox_2d" if region.is_box else "point_2d": in_order(region.place, places), **label}


def in_order(place: Place, places: Places) -> list[float]:
    """The numbers of a place in the order that the model answers in."""
    return [place[axis ^ (places.order == "yxyx")] for axis in range(len(place))]


def gold_boxes_text(columns: Columns, *, places: Objects = OBJECTS, **_: object) -> str:
    """The gold as Qwen2.5-VL writes boxes, in the frame and the order that the model answers in."""
    listed = [written(region, places) for region in gold_places(columns, places)]
    return f"```json\n{json.dumps(listed, ensure_ascii=False)}\n```"


def _gold_points_text(columns: Columns, *, places: Objects = OBJECTS) -> str:
    points = map(pointed_at, gold_boxes(columns, places))
    return json.dumps([written(Region(point), places) for point in points])


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
    whose corners come in another order is put in order; one without area scores 0. Several for one target
    count as no answer.

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
    return matched(completion, columns, "box", places, box_iou)


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
    return matched(completion, columns, "box", places, box_giou, worst=-1.0)


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
    return matched(completion, columns, "both", places, strictly_inside)
