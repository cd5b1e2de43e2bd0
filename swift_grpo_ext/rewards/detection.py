"""Object detection: sets of labelled boxes."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from pydantic import Field

from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold.geometry import best_assignment, box_iou
from swift_grpo_ext.rewards.gold.regions import GOLD, OBJECTS, READS, Objects, Places, gold_places
from swift_grpo_ext.rewards.grounding import gold_boxes_text
from swift_grpo_ext.rewards.reading.answer import extract_answer
from swift_grpo_ext.rewards.reading.boxes import says_nothing, stated_regions
from swift_grpo_ext.rewards.reading.region import Box

Threshold: TypeAlias = Annotated[float, Field(gt=0, le=1)]
Scored: TypeAlias = tuple[Box, float]  # A box with the model's confidence in it, 0..1

COCO_THRESHOLDS = tuple(0.5 + 0.05 * step for step in range(10))
RECALL_POINTS = tuple(step / 100 for step in range(101))


def _by_label(
    completion: str, columns: Columns, places: Places
) -> tuple[dict[str, list[Scored]], dict[str, list[Box]]]:
    """Predicted and gold boxes by label; all under one label if the gold has none.

    Raises:
        Unscorable: A gold label is the number of a class.
    """
    gold: dict[str, list[Box]] = defaultdict(list)
    for region in gold_places(columns, "box", places):
        assert region.box is not None
        if region.label.isdecimal():
            raise Unscorable(f"gold label {region.label!r} is a class number: write the class's name")
        gold[" ".join(region.label.casefold().split())].append(region.box)
    unlabelled = set(gold) == {""}
    predicted: dict[str, list[Scored]] = defaultdict(list)
    for region in stated_regions(extract_answer(completion) or "", "box", places.in_answers):
        if region.box is not None:
            confidence = 1.0 if region.confidence is None else min(1.0, max(0.0, region.confidence))
            label = "" if unlabelled else " ".join(region.label.casefold().split())
            predicted[label].append((region.box, confidence))
    return predicted, gold


def hits(predicted: Sequence[Box], gold: Sequence[Box], threshold: float) -> int:
    """The most one-to-one pairs of predicted and gold boxes whose IoU reaches the threshold."""
    reached = [[box_iou(one, other) >= threshold for other in gold] for one in predicted]
    return sum(reached[row][column] for row, column in best_assignment(reached))


@reward(gold=GOLD, reads=READS, gold_text=gold_boxes_text)
def detection_f1(
    completion: str, columns: Columns, *, iou_threshold: Threshold = 0.5, places: Objects = OBJECTS
) -> float:
    """F1 of the detected objects at one IoU threshold, 0..1.

    A predicted box is a hit if it can be paired with a gold box of the same label at the threshold, one to
    one; the pairing is the one with the most hits. Labels are compared without regard to case; if the gold
    has no labels, those of the answer do not matter.

    Args:
        iou_threshold: IoU that a hit must reach.
    Gold: ``solution`` (or ``bbox``, ``boxes``, ``answer``): objects as ``{"bbox_2d": [...], "label": "cat"}``
        or bare boxes; or ms-swift's ``objects`` with ``ref`` as labels.
    Raises:
        Unscorable: No gold box, a gold box without area, or a conversion between frames without
            ``image_sizes``.
    Rises with: Precision and recall of the hits.
    Gaming:
        - Many boxes, or the same box again: each one beyond a hit lowers precision
          (test_spam_of_boxes_lowers_the_score).
        - Unknown labels: false positives (test_unknown_labels_are_false_positives).
    Source: F1 over a maximum bipartite matching.
    Example:
        >>> from swift_grpo_ext import get_reward
        >>> gold = [{"bbox_2d": [0, 0, 9, 9], "label": "cat"}, {"bbox_2d": [20, 0, 29, 9], "label": "a"}]
        >>> answer = '[{"bbox_2d": [0, 0, 9, 10], "label": "cat"}, {"bbox_2d": [20, 0, 29, 9], "label": "b"}]'
        >>> get_reward("ext_detection_f1")(answer, {"solution": gold})
        0.5
    """
    predicted, gold = _by_label(completion, columns, places)
    if not gold:
        return float(says_nothing(extract_answer(completion)))
    pairs = sum(
        hits([box for box, _ in predicted[label]], boxes, iou_threshold) for label, boxes in gold.items()
    )
    return 2 * pairs / (sum(map(len, predicted.values())) + sum(map(len, gold.values())))


def average_precisions(
    predicted: Sequence[Scored], gold: Sequence[Box], thresholds: Sequence[float]
) -> list[float]:
    """COCO's average precision (101 recall points) of one label in one image at each IoU threshold.

    Boxes of equal confidence enter together, so their order does not matter and none of them gains from it.
    """
    overlaps = [([box_iou(box, other) for other in gold], confidence) for box, confidence in predicted]
    overlaps.sort(key=lambda pair: (-pair[1], -max(pair[0])))
    return [_average_precision(overlaps, threshold, len(gold)) for threshold in thresholds]


def _average_precision(overlaps: Sequence[tuple[list[float], float]], threshold: float, gold: int) -> float:
    """At one threshold, from each box's IoU with every gold box and its confidence, in that order."""
    free = set(range(gold))
    recalls: list[float] = []
    precisions: list[float] = []
    for rank, (overlap, confidence) in enumerate(overlaps, start=1):
        best = max(
            sorted(free), key=overlap.__getitem__, default=None
        )  # the free gold box that it covers best
        if best is not None and overlap[best] >= min(threshold, 1 - 1e-10):
            free.remove(best)
        if rank == len(overlaps) or overlaps[rank][1] != confidence:
            hits = gold - len(free)
            recalls.append(hits / gold)
            precisions.append(hits / rank)
    for at in range(len(precisions) - 1, 0, -1):
        precisions[at - 1] = max(precisions[at - 1], precisions[at])
    reached = [at for point in RECALL_POINTS if (at := bisect_left(recalls, point)) < len(recalls)]
    return sum(precisions[at] for at in reached) / len(RECALL_POINTS)


def mean_average_precision(predicted: dict[str, list[Scored]], gold: dict[str, list[Box]]) -> float:
    """Mean over labels and IoU thresholds .50 to .95; unlike in COCO an unknown label counts, with 0."""
    labels = {*gold, *predicted}
    total = math.fsum(
        sum(average_precisions(predicted.get(label, []), boxes, COCO_THRESHOLDS))
        for label, boxes in gold.items()
    )
    return min(1.0, total / (len(labels) * len(COCO_THRESHOLDS)))


@reward(gold=GOLD, reads=READS, gold_text=gold_boxes_text)
def detection_map(completion: str, columns: Columns, *, places: Objects = OBJECTS) -> float:
    """Mean average precision (COCO, IoU .50 to .95) of one image, times a price for surplus boxes, 0..1.

    The model may give each object a ``score``; it is clamped to 0..1, and a missing one is 1. The price is
    gold boxes over predicted boxes where there are more predicted ones: average precision alone lets a model
    add any number of boxes of low confidence for free.

    Gold: As for `ext_detection_f1`.
    Raises:
        Unscorable: No gold box, a gold box without area, or a conversion between frames without
            ``image_sizes``.
    Rises with: Hits at stricter thresholds, hits ranked above misses, fewer surplus boxes.
    Gaming:
        - Surplus boxes at low confidence: priced (test_spam_of_boxes_lowers_the_score).
        - A lucky order of boxes of equal confidence: order does not matter (test_order_does_not_matter).
        - Confidence above 1: clamped (test_confidence_above_one_gains_nothing).
        - Unknown labels: each is a label with precision 0 (test_unknown_labels_are_false_positives).
    Source: COCO detection evaluation (pycocotools); the price is this package's.
    Example:
        >>> from swift_grpo_ext import get_reward
        >>> # Half of the boxes are right, and twice as many as there should be.
        >>> get_reward("ext_detection_map")("[[0, 0, 9, 9], [20, 0, 29, 9]]", {"solution": [[0, 0, 9, 9]]})
        0.25
    """
    predicted, gold = _by_label(completion, columns, places)
    if not gold:
        return float(says_nothing(extract_answer(completion)))
    given = sum(map(len, predicted.values()))
    wanted = sum(map(len, gold.values()))
    return mean_average_precision(predicted, gold) * min(1.0, wanted / max(given, 1))
