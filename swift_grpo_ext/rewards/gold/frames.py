"""The coordinate frames that vision models write in, and the conversion between them.

``pixel_resized``: pixels of the image as the processor resized it (Qwen2.5-VL). ``pixel_original``: pixels of
the image in the dataset. ``norm1``: fractions of width and height. ``norm1000``: thousandths of them
(Qwen2-VL, Qwen3-VL, InternVL, Ovis); ``norm100``: hundredths (Molmo, MiniGPT-v2); ``norm1024``: parts of 1024
(PaliGemma). A frame is declared by the user, never guessed from the numbers.

Sizes come from the column ``image_sizes``: per row one ``{"original": [w, h], "resized": [w, h]}`` in pixels
for each image.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from swift_grpo_ext.rewards.contract import Columns, Unscorable

Frame: TypeAlias = Literal["pixel_resized", "pixel_original", "norm1", "norm100", "norm1000", "norm1024"]
FRAMES: tuple[Frame, ...] = get_args(Frame)
SIZES_COLUMN = "image_sizes"

_KEY_OF_PIXELS = {"pixel_resized": "resized", "pixel_original": "original"}
_PARTS = {f"norm{parts}": float(parts) for parts in (1, 100, 1000, 1024)}


def extent(frame: Frame, columns: Columns, image_index: int = 0) -> tuple[float, float]:
    """Width and height of the whole image in units of the frame; pixel frames need ``image_sizes``.

    Raises:
        Unscorable: The frame is in pixels, and the row does not hold the image's size.
    """
    if frame in _PARTS:
        return _PARTS[frame], _PARTS[frame]
    try:
        width, height = columns[SIZES_COLUMN][image_index][_KEY_OF_PIXELS[frame]]
    except (KeyError, IndexError, TypeError, ValueError):
        raise Unscorable(
            f'{frame} needs column {SIZES_COLUMN} for image {image_index}, as {{"original": [w, h], '
            '"resized": [w, h]}, or another frame= of the answers'
        ) from None
    if not all(isinstance(side, (int, float)) and 0 < side < 1e7 for side in (width, height)):
        raise Unscorable(f"{SIZES_COLUMN} holds no size: {width!r:.20} x {height!r:.20}")
    return float(width), float(height)


def convert(
    values: Sequence[float], source: Frame, target: Frame, columns: Columns, image_index: int = 0
) -> tuple[float, ...]:
    """A point ``(x, y)`` or a box ``(x1, y1, x2, y2)`` in another frame; pixels need ``image_sizes``."""
    if source == target:
        return tuple(values)
    from_extent = extent(source, columns, image_index)
    to_extent = extent(target, columns, image_index)
    return tuple(value * to_extent[axis % 2] / from_extent[axis % 2] for axis, value in enumerate(values))


def image_aspect(columns: Columns, image_index: int = 0) -> float:
    """Width over height of the image; unscorable if the row does not give its size."""
    try:
        width, height = extent("pixel_original", columns, image_index)
    except Unscorable:
        width, height = extent("pixel_resized", columns, image_index)
    return width / height
