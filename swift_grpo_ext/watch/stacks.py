"""Where a thread of this process stands, in words."""

from __future__ import annotations

import sys
import threading
from types import FrameType

# Frames of these are passed over when it is told who called a collective.
_MACHINERY = ("/torch/", "/accelerate/", "/contextlib.py", "/functools.py")


def where_main_thread_stands() -> str:
    """File, line and function; if it waits for the other ranks, in which collective and who called it."""
    identity = threading.main_thread().ident
    frame = sys._current_frames().get(identity) if identity is not None else None
    return describe(frame) if frame is not None else "ended"


def describe(frame: FrameType) -> str:
    """The innermost frame, or the collective that it is part of with its caller outside of the machinery."""
    collective = ""
    current: FrameType | None = frame
    while current is not None:
        file = current.f_code.co_filename
        if "/torch/distributed/" in file:
            collective = current.f_code.co_name
        elif collective and not any(part in file for part in _MACHINERY):
            return f"waiting for the other ranks in {_plain(collective)}, called from {_place(current)}"
        current = current.f_back
    return f"waiting for the other ranks in {_plain(collective)}" if collective else f"at {_place(frame)}"


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


def _plain(collective: str) -> str:
    return collective if collective != "wrapper" else "a collective"
