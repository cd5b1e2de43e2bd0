"""Object detection: sets of labelled boxes."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from swift_grpo_ext.rewards.contract import Columns, Outcome, Unscorable, reward
from swift_grpo_ext.rewards.gold.geometry import best_assignment, box_iou
from swift_grpo_ext.rewards.gold.regions import GOLD, OBJECTS, READS, Objects, gold_places, shown
from swift_grpo_ext.rewards.grounding import gold_boxes_text
from swift_grpo_ext.rewards.place import answer_of, narrow
from swift_grpo_ext.rewards.values.region import Place, Region
from swift_grpo_ext.rewards.values.regions import read, says_nothing


def _named(regions: Sequence[Region], labelled: bool) -> list[tuple[str, Place]]:
    """The boxes with their labels as they are compared; all are empty if the gold has no labels."""
    return [
        (" ".join(narrow(region.label).casefold().split()) * labelled, region.place)
        for region in regions
        if region.is_box
    ]


def hits(predicted: Sequence[tuple[str, Place]], gold: Sequence[tuple[str, Place]], threshold: float) -> int:
    """Number of hits: most one-to-one pairs of a predicted and a gold box with one label and enough IoU."""
    reached = [
        [label == other and box_iou(box, gold_box) >= threshold for other, gold_box in gold]
        for label, box in predicted
    ]
    return sum(reached[row][column] for row, column in best_assignment(reached))


@reward(gold=GOLD, reads=READS, gold_text=gold_boxes_text)
def detection_f1(
    completion: str,
    columns: Columns,
    *,
    iou_threshold: Annotated[float, Field(gt=0, le=1)] = 0.5,
    places: Objects = OBJECTS,
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
    gold = gold_places(columns, places)
    numbers = [region.label for region in gold if region.label.isdecimal()]
    if numbers:
        raise Unscorable(f"gold label {numbers[0]!r} is a class number: write the class's name")
    answer = answer_of(completion, "located")
    if not gold:
        return Outcome.of(float(says_nothing(answer)), answer, "nothing")
    labelled = any(region.label for region in gold)
    predicted = _named(read(answer, "box", places.in_answers), labelled)
    expected = _named(gold, labelled)
    score = 2 * hits(predicted, expected, iou_threshold) / (len(predicted) + len(expected))
    return Outcome.of(score, shown(predicted), shown(expected))
