"""The times that a template writes beside the frames of a video, against the row."""

import os
from collections.abc import Mapping
from typing import Any

from swift_grpo_ext.rewards.contract import Columns

_USUAL = 2.0  # frames per second that ms-swift assumes for a list of frames if neither row nor FPS gives it
_RATES = ("fps", "video_fps", "frame_rate")  # columns that may hold the frame rate


def invented_times(columns: Columns, environ: Mapping[str, str] = os.environ) -> str:
    """Reason, in words, that times of a row's first video are not those of its clip; empty if they are.

    A video file has its frame rate. Of a list of frames ms-swift writes frame k as k / FPS seconds, or as
    k / ``raw_fps`` where the row's ``chat_template_kwargs`` have that (Qwen3-VL).
    """
    videos = columns.get("videos")
    clips = videos if isinstance(videos, (list, tuple)) else ()
    frames = next((video for video in clips if isinstance(video, (list, tuple))), None)
    if not frames:
        return ""
    options = columns.get("chat_template_kwargs")
    own = options.get("raw_fps") if isinstance(options, Mapping) else None
    said = _number(own) or _number(environ.get("FPS"))
    true = next(filter(None, (_number(columns.get(name)) for name in _RATES)), said)
    written = said or _USUAL
    if true == written:
        return ""
    last = len(frames) - 1
    if true is None:
        return (
            f"its video is {len(frames)} frames without a frame rate, and frame {last} is written as "
            f"{last / written:g} s: set FPS, or raw_fps in chat_template_kwargs"
        )
    return (
        f"frame {last} of a {true:g} fps clip is written as {last / written:g} s, it is at "
        f"{last / true:g} s: set FPS={true:g}, or raw_fps in chat_template_kwargs"
    )


def _number(value: Any) -> float | None:
    """A positive number; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < 1e6 else None
