"""Frames of videos: evenly spread ones as several images, or as many as ``qwen_vl_utils`` asks for."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models.images import find_file, one_line

_TAG = re.compile("<(image|video)>")
_SHOWN = 120
# What `read_frames` raises for files that are not a video, cut off, without a video, or not there.
UNREADABLE = (OSError, ValueError, IndexError)


def videos_as_images(
    contents: Sequence[str | None], images: Sequence[object], videos: Sequence[Sequence[object]]
) -> tuple[list[str | None], list[object]]:
    """Texts with image tags only, a line for each frame, and all images in the order of their tags."""
    media: dict[str, Iterator[Sequence[object]]] = {
        "image": ([image] for image in images),
        "video": iter(videos),
    }
    ordered: list[Any] = []

    def place(match: re.Match[str]) -> str:
        pictures = next(media[match[1]])
        ordered.extend(pictures)
        return "\n".join(["<image>"] * len(pictures))

    return [content and _TAG.sub(place, content) for content in contents], ordered


def frames_of(video: Any, count: int) -> list[object]:
    """``count`` evenly spread frames of a video file, or all of a list of images.

    Raises:
        DatasetRowError: The video cannot be read or has no frames.
    """

    def spread(total: int, _: float) -> list[int]:
        taken = min(count, total)
        return [int((number + 0.5) * total / taken) for number in range(taken)]

    with reading(video):
        of_file = isinstance(video, str)
        frames = list(map(Image.fromarray, read_frames(video, spread))) if of_file else list(video)
    if not frames:
        raise DatasetRowError("video cannot be read: it has no frames", where=_place(video))
    return frames


def _place(video: Any) -> str:
    return f"{len(video)} frames in the row" if isinstance(video, (list, tuple)) else str(video)[:_SHOWN]


@contextmanager
def reading(video: Any, refused: tuple[type[Exception], ...] = UNREADABLE) -> Iterator[None]:
    """Name the video in what its reader raises.

    Raises:
        DatasetRowError: The value is not a video, or its reader fails.
    """
    where = _place(video)
    if not isinstance(video, (str, list, tuple)):
        fix = "give a path, a URL, or a list of images"
        raise DatasetRowError(f"video is a {type(video).__name__}", where=where, fix=fix)
    try:
        yield
    except refused as error:
        raise DatasetRowError(f"video cannot be read: {one_line(error)}", where=where) from None


def read_frames(video: Any, choose: Callable[[int, float], Sequence[int]]) -> list[object]:
    """Some frames of a video file, arrays ``(height, width, 3)`` of bytes.
    ``video`` is a path, a URL, or what ms-swift has read of it for decord, which could make nothing of it;
    ``choose`` picks frames by number, ascending, given how many there are and how many a second.

    Raises:
        OSError: FFmpeg cannot read the file; what else is raised is in `UNREADABLE`.
    """
    import av
    from swift.template.vision_utils import load_file

    if isinstance(video, str):
        source: Any = load_file(video) if video.startswith(("http://", "https://")) else find_file(video)
    else:
        source = video
        source.seek(0)
    try:
        with av.open(source) as container:
            chosen = _chosen_frames(container, choose)
    except av.FFmpegError as error:  # only some of its kinds are an OSError or a ValueError as well
        raise OSError(str(error)) from error
    return [array for array, times in chosen for _ in range(times)]


def _chosen_frames(container: Any, choose: Callable[[int, float], Sequence[int]]) -> list[tuple[object, int]]:
    """Frames, each with how often it was chosen. Decoded twice: their number must be known to choose.

    Raises:
        ValueError: The file has no frames or no frame rate.
    """
    stream = container.streams.video[0]
    rate = stream.average_rate or stream.guessed_rate
    total = sum(1 for _ in container.decode(stream))
    if not total or not rate:
        raise ValueError(f"{total} frames at {rate} a second")
    repeats = Counter(choose(total, float(rate)))
    container.seek(0)
    frames = enumerate(container.decode(stream))
    return [(frame.to_ndarray(format="rgb24"), repeats[n]) for n, frame in frames if n in repeats]


def read_for_qwen(asked: Mapping[str, Any]) -> tuple[torch.Tensor, dict[str, object], float]:
    """Of what ``fetch_video`` takes: frames ``(frames, 3, height, width)``, facts, and how many a second."""
    from qwen_vl_utils.vision_process import calculate_video_frame_range, smart_nframes

    known: dict[str, Any] = {"video_backend": "pyav"}

    def choose(total: int, rate: float) -> list[int]:
        first, last, count = calculate_video_frame_range(dict(asked), total, rate)
        taken = smart_nframes(dict(asked), total_frames=count, video_fps=rate)
        numbers = [round(place) for place in np.linspace(first, last, taken)]
        known.update(fps=rate, frames_indices=numbers, total_num_frames=total, taken=taken / count * rate)
        return numbers

    frames = torch.from_numpy(np.stack(read_frames(asked["video"], choose))).permute(0, 3, 1, 2)
    return frames, known, known.pop("taken")


def give_qwen_a_reader() -> None:
    """Let ``qwen_vl_utils`` read video files, whose last resort is torchvision.

    torchvision reads none from 0.26 on, and before that none with a PyAV that knows no ``metadata_errors``.
    """
    from qwen_vl_utils import vision_process

    vision_process.VIDEO_READER_BACKENDS["torchvision"] = read_for_qwen
