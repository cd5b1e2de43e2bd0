"""A video as evenly spread frames, for families that take a video as several images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from PIL import Image

from swift_grpo_ext.errors import DatasetRowError

_TAG = re.compile("<(image|video)>")
_SHOWN = 120
# What readers of videos raise for files that are none, cut off, or not there.
UNREADABLE = (OSError, ValueError, RuntimeError, ImportError, IndexError, TypeError, ZeroDivisionError)


def videos_as_images(
    contents: Sequence[str | None], images: Sequence[Any], videos: Sequence[Sequence[Any]]
) -> tuple[list[str | None], list[Any]]:
    """Turn every video into images in its place, one tag and line for each frame.

    Args:
        contents: Texts of a row in order, with one tag for every image and video.
        images: Images of the row, in the order of their tags.
        videos: Frames of each video, in the order of their tags.

    Returns:
        The texts with image tags only, and all images in the order of their tags.
    """
    remaining_images, remaining_videos = iter(images), iter(videos)
    ordered: list[Any] = []

    def place(match: re.Match[str]) -> str:
        if match[1] == "image":
            ordered.append(next(remaining_images))
            return "<image>"
        frames = next(remaining_videos)
        ordered.extend(frames)
        return "\n".join(["<image>"] * len(frames))

    return [content and _TAG.sub(place, content) for content in contents], ordered


def frames_of(video: Any, count: int) -> list[Any]:
    """Frames of a video: evenly spread ones of a file, or all of a list of images.

    Args:
        video: Path or URL of a video, or a list of image sources.
        count: Frames to take of a file; fewer if it has fewer.

    Returns:
        Image sources: Pillow images, or what the list holds.

    Raises:
        DatasetRowError: The file cannot be read as a video, or there is no frame.
    """
    frames: list[Any]
    if isinstance(video, (list, tuple)):
        frames = list(video)
    else:
        frames = [Image.fromarray(frame) for frame in _read(video, count)]
    if not frames:
        raise DatasetRowError("video has no frames", where=_named(video))
    return frames


def _read(video: Any, count: int) -> Any:
    """Evenly spread frames of a file or URL, each an array."""
    from transformers.video_utils import load_video

    def spread(metadata: Any, **_: Any) -> list[int]:
        total = int(metadata.total_num_frames)
        taken = min(count, total)
        return [int((number + 0.5) * total / taken) for number in range(taken)]

    try:
        frames, _ = load_video(video, backend="pyav", sample_indices_fn=spread)
    except UNREADABLE as error:
        raise unreadable(video, error) from None
    return frames


def unreadable(video: Any, error: BaseException) -> DatasetRowError:
    """The error that names a video and what its reader said of it."""
    problem = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]
    return DatasetRowError(f"video cannot be read: {problem}", where=_named(video))


def _named(video: Any) -> str:
    return f"{len(video)} frames in the row" if isinstance(video, (list, tuple)) else str(video)[:_SHOWN]
