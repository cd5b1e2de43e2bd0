"""Whether predicted boxes are written in another coordinate frame than the gold ones."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from swift_grpo_ext.rewards.contract import Unscorable
from swift_grpo_ext.rewards.geometry import Box
from swift_grpo_ext.rewards.regions import gold_regions, parse_regions

_SAMPLES = 16
_GOLD_COLUMNS = ("solution", "objects", "bbox", "answer")
_SLACK = 1.05
_ENOUGH = 3

_NAMES = {
    "fractions": "fractions from 0 to 1",
    "thousandths": "numbers from 0 to 1000",
    "pixels": "pixels of the image",
    "large": "numbers far above 1",
}


def hint_of(samples: Sequence[Any]) -> str:
    """`frame_hint` over the boxes in samples of the host, with the completion as their last message."""
    predicted: list[Box] = []
    gold: list[Box] = []
    sizes: list[tuple[float, float]] = []
    for sample in samples[:_SAMPLES]:
        boxes = _boxes(parse_regions(str(sample.messages[-1]["content"]), "box"))
        try:
            known = gold_regions(
                {"objects": sample.objects, **sample.extra}, _GOLD_COLUMNS, "box", "norm1000"
            )
        except Unscorable:
            continue
        gold += _boxes(known[0])
        size = _size(sample.images[0]) if boxes and sample.images else None
        predicted += boxes
        sizes += [size] * len(boxes) if size else []
    return frame_hint(predicted, gold, sizes)


def frame_hint(predicted: Sequence[Box], gold: Sequence[Box], sizes: Sequence[tuple[float, float]]) -> str:
    """In words, a frame that the predicted boxes seem to be in while the gold is in another.

    Tells only what the numbers leave no doubt about: boxes beyond the image's edges are not in its pixels,
    and numbers up to 1 are fractions.

    Args:
        predicted: Boxes ``(left, top, right, bottom)`` of several completions.
        gold: Boxes of their rows.
        sizes: Width and height in pixels of the row's image, for each predicted box.

    Returns:
        A clause, or nothing.
    """
    if len(predicted) < _ENOUGH or not gold:
        return ""
    theirs, ours = _frame(predicted, sizes), _frame(gold, sizes)
    if theirs == ours or "" in (theirs, ours) or {theirs, ours} == {"pixels", "large"}:
        return ""
    return f"predicted boxes look like {_NAMES[theirs]} while the gold is in {_NAMES[ours]}"


def _frame(boxes: Sequence[Box], sizes: Sequence[tuple[float, float]]) -> str:
    largest = max(max(map(abs, box)) for box in boxes)
    if largest <= 1:
        return "fractions"
    width = max((size[0] for size in sizes), default=0.0)
    height = max((size[1] for size in sizes), default=0.0)
    if not width or not height:
        return ""
    beyond = sum(box[2] > width * _SLACK or box[3] > height * _SLACK for box in boxes)
    if beyond == 0:  # thousandths of a large image lie inside it as well
        return "pixels" if largest > 1000 or max(width, height) < 1000 else "large"
    return "thousandths" if largest <= 1000 and beyond >= len(boxes) / 2 else ""


def _boxes(regions: Sequence[Any]) -> list[Box]:
    return [region.box for region in regions if region.box is not None]


def _size(image: Any) -> tuple[float, float] | None:
    """Width and height of an image of a dataset row, from its header; None if it cannot be read."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(image, Mapping):
        image = io.BytesIO(image["bytes"]) if image.get("bytes") else image.get("path")
    if isinstance(image, Image.Image):
        return image.size
    try:
        with Image.open(image) as opened:
            return opened.size
    except (OSError, UnidentifiedImageError, AttributeError, ValueError, Image.DecompressionBombError):
        return None
