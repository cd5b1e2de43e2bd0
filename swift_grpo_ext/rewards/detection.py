"""Object detection: sets of labelled boxes."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from pydantic import Field

from swift_grpo_ext.rewards.contract import Columns, Outcome, Unscorable, reward
from swift_grpo_ext.rewards.gold.geometry import best_assignment, box_iou
from swift_grpo_ext.rewards.gold.regions import GOLD, OBJECTS, READS, Objects, Places, gold_places
from swift_grpo_ext.rewards.grounding import gold_boxes_text
from swift_grpo_ext.rewards.place import answer_of
from swift_grpo_ext.rewards.values.region import Box
from swift_grpo_ext.rewards.values.regions import read, says_nothing

Threshold: TypeAlias = Annotated[float, Field(gt=0, le=1)]


def _by_label(
    answer: str, columns: Columns, places: Places
) -> tuple[dict[str, list[Box]], dict[str, list[Box]]]:
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
    predicted: dict[str, list[Box]] = defaultdict(list)
    for region in read(answer, "box", places.in_answers) if gold else ():
        if region.box is not None:
            label = "" if unlabelled else " ".join(region.label.casefold().split())
            predicted[label].append(region.box)
    return predicted, gold


def hits(predicted: Sequence[Box], gold: Sequence[Box], threshold: float) -> int:
    """The most one-to-one pairs of predicted and gold boxes whose IoU reaches the threshold."""
    reached = [[box_iou(one, other) >= threshold for other in gold] for one in predicted]
    return sum(reached[row][column] for row, column in best_assignment(reached))


@reward(gold=GOLD, reads=READS, gold_text=gold_boxes_text)
def detection_f1(
    completion: str, columns: Columns, *, iou_threshold: Threshold = 0.5, places: Objects = OBJECTS
) -> Outcome:
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
    answer = answer_of(completion, "located")
    predicted, gold = _by_label(answer, columns, places)
    if not gold:
        return Outcome.of(float(says_nothing(answer)), answer, "nothing")
    pairs = sum(hits(predicted[label], boxes, iou_threshold) for label, boxes in gold.items())
    score = 2 * pairs / (sum(map(len, predicted.values())) + sum(map(len, gold.values())))
    return Outcome.of(score, dict(predicted), dict(gold))
