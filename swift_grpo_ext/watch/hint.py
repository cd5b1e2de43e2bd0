"""Whether predicted boxes are written in another coordinate frame than the gold ones."""

from __future__ import annotations

from collections.abc import Sequence

Box = tuple[float, float, float, float]

_SLACK = 1.05
_ENOUGH = 3

_NAMES = {
    "fractions": "fractions from 0 to 1",
    "thousandths": "numbers from 0 to 1000",
    "pixels": "pixels of the image",
    "large": "numbers far above 1",
}


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
