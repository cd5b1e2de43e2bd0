"""Visual grounding: how well predicted boxes cover the gold boxes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from swift_grpo_ext.rewards.answer import extract_answer
from swift_grpo_ext.rewards.contract import Columns, reward
from swift_grpo_ext.rewards.frames import SIZES_COLUMN, Frame, convert
from swift_grpo_ext.rewards.geometry import Box, box_giou, box_iou, matched_mean
from swift_grpo_ext.rewards.regions import Region, gold_regions, parse_regions

GOLD = ("solution", "bbox", "boxes", "objects", "answer")


def gold_boxes(
    columns: Columns, frame: Frame, gold_frame: Frame | None, image_index: int
) -> list[tuple[Box, Region]]:
    """The row's gold boxes in the frame of the model's answers, each with the region it came from.

    Raises:
        Unscorable: The row has no usable gold boxes, or lacks the image's size to convert them.
    """
    regions, source = gold_regions(columns, GOLD, "box", gold_frame or frame)
    return [
        (_as_box(convert(region.box, source, frame, columns, image_index)), region)
        for region in regions
        if region.box is not None
    ]


def _as_box(values: tuple[float, ...]) -> Box:
    left, top, right, bottom = values
    return left, top, right, bottom


def gold_boxes_text(
    columns: Columns,
    *,
    frame: Frame = "pixel_resized",
    gold_frame: Frame | None = None,
    image_index: int = 0,
    **_: Any,
) -> str:
    """The gold as Qwen2.5-VL writes boxes, in the frame that the model answers in."""
    boxes = gold_boxes(columns, frame, gold_frame, image_index)
    listed: list[dict[str, Any]] = [{"bbox_2d": list(box)} for box, _region in boxes]
    for entry, (_box, region) in zip(listed, boxes, strict=True):
        if region.label:
            entry["label"] = region.label
    return f"```json\n{json.dumps(listed, ensure_ascii=False)}\n```"


def _overlap(
    completion: str,
    columns: Columns,
    gain: Callable[[Box, Box], float],
    worst: float,
    frame: Frame,
    gold_frame: Frame | None,
    image_index: int,
) -> float:
    gold = [box for box, _region in gold_boxes(columns, frame, gold_frame, image_index)]
    answer = extract_answer(completion)
    predicted = [region.box for region in parse_regions(answer or "", "box") if region.box is not None]
    return matched_mean(predicted, gold, gain, unmatched=worst) if predicted else worst


@reward(gold=GOLD, reads=(SIZES_COLUMN,), gold_text=gold_boxes_text)
def iou(
    completion: str,
    columns: Columns,
    *,
    frame: Frame = "pixel_resized",
    gold_frame: Frame | None = None,
    image_index: int = 0,
) -> float:
    """Intersection over union of the predicted with the gold boxes, 0..1.

    Predicted and gold boxes are paired one to one so that the total IoU is greatest; the score is that total
    over the number of predicted or gold boxes, whichever is greater. With one box each it is their IoU. A box
    whose corners come in another order is put in order; one without area scores 0.

    Args:
        frame: Coordinate frame that the model answers in.
        gold_frame: Coordinate frame of the gold column; the same as `frame` if not given.
        image_index: Which of the row's images the boxes lie in, from 0.

    Gold:
        ``solution`` (or ``bbox``, ``boxes``, ``answer``): one box ``[x1, y1, x2, y2]``, a list of boxes, or
        text or JSON that holds them; or ms-swift's ``objects``.

    None:
        No gold box, a gold box without area, or a conversion between frames without ``image_sizes``.

    Rises with:
        The overlap of each pair; moving a box towards its partner never lowers it once they touch.

    Gaming:
        - Many boxes, so that one hits: every box without a partner lowers the mean
          (test_spam_of_boxes_lowers_the_score).
        - The same box again: the same (test_a_repeated_box_lowers_the_score).
        - A box in the thinking part: not read (test_boxes_in_the_thinking_part_are_not_read).
        - One box over the whole image: its IoU is the gold's share of the image
          (test_a_box_over_the_whole_image).

    Frame:
        Declared by `frame` and `gold_frame`; with both the same, no size is needed.

    Source:
        Jaccard index; Hungarian matching as in DETR (arXiv 2005.12872).
    """
    return _overlap(completion, columns, box_iou, 0.0, frame, gold_frame, image_index)


@reward(low=-1.0, gold=GOLD, reads=(SIZES_COLUMN,), gold_text=gold_boxes_text)
def giou(
    completion: str,
    columns: Columns,
    *,
    frame: Frame = "pixel_resized",
    gold_frame: Frame | None = None,
    image_index: int = 0,
) -> float:
    """Generalised intersection over union of the predicted with the gold boxes, -1..1.

    Like `ext_iou`, but boxes that do not touch still tell near from far: IoU minus the share of the smallest
    enclosing box that neither fills. An answer without a box, and every box without a partner, is -1.

    Args:
        frame: Coordinate frame that the model answers in.
        gold_frame: Coordinate frame of the gold column; the same as `frame` if not given.
        image_index: Which of the row's images the boxes lie in, from 0.

    Gold:
        As for `ext_iou`.

    None:
        No gold box, a gold box without area, or a conversion between frames without ``image_sizes``.

    Rises with:
        The overlap, and without overlap with nearness.

    Gaming:
        - Many boxes, so that one hits: every box without a partner counts -1
          (test_spam_of_boxes_lowers_the_score).
        - The same box again: the same (test_a_repeated_box_lowers_the_score).

    Frame:
        Declared by `frame` and `gold_frame`; with both the same, no size is needed.

    Source:
        Rezatofighi et al., arXiv 1902.09630.
    """
    return _overlap(completion, columns, box_giou, -1.0, frame, gold_frame, image_index)
