"""Boxes and points of an answer and of its gold, as fractions of the image, for drawing them on it."""

from collections.abc import Mapping, Sequence

from swift_grpo_ext.rewards.contract import (
    Columns,
    Completion,
    Reward,
    Unread,
    Unscorable,
    completion_text,
)
from swift_grpo_ext.rewards.gold.frames import Frame
from swift_grpo_ext.rewards.gold.regions import Places, gold_regions, moved
from swift_grpo_ext.rewards.place import answer_of
from swift_grpo_ext.rewards.values.region import Region
from swift_grpo_ext.rewards.values.regions import Kind, read

_BOXES_ONLY = ("ext_iou", "ext_giou", "ext_detection_f1")


def located(
    completion: Completion, columns: Columns, reward: Reward, parameters: Mapping[str, object]
) -> dict[str, object] | None:
    """Where an answer and its gold are, in fractions of the image; None if either is not known.

    ``{"image": number, "gold": [...], "predicted": [{"at": [x1, y1, x2, y2] or [x, y], "label": text}]}``.
    """
    try:
        places: Places = reward.declared.packed(parameters)["places"]
        kind: Kind = "box" if reward.name in _BOXES_ONLY else "both"
        gold, source = gold_regions(columns, reward.gold, kind, places)
        predicted = _read(completion, kind, places)
        index = places.image_index
        return {
            "image": index,
            "gold": _drawn(gold, source, columns, index),
            "predicted": _drawn(predicted, places.frame, columns, index),
        }
    except Unscorable:
        return None


def _read(completion: Completion, kind: Kind, places: Places) -> list[Region]:
    try:
        return read(answer_of(completion_text(completion), "located"), kind, places.in_answers)
    except Unread:
        return []


def _drawn(regions: Sequence[Region], frame: Frame, columns: Columns, index: int) -> list[dict[str, object]]:
    there = [moved(region, frame, "norm1", columns, index) for region in regions]
    return [{"at": [round(value, 5) for value in region.place], "label": region.label} for region in there]
