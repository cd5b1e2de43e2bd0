"""Signs of life of the ranks: a small file each in the output folder, which work while collectives hang."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import FrameType

from swift_grpo_ext.folders import write_whole

# Frames of these are passed over when it is told who called a collective.
_MACHINERY = ("/torch/", "/accelerate/", "/contextlib.py", "/functools.py")
_WAITING = "waiting for the other ranks"


@dataclass(frozen=True)
class Beat:
    """One rank's last sign of life; clocks are wall clocks, in seconds since 1970."""

    rank: int
    step: int  # optimizer steps taken
    phase: str  # see `phases.PHASES`
    since: float  # when it got there
    beat: float  # when it gave this sign
    where: str = ""  # place in the code; empty while all is well
    pid: int = 0
    host: str = ""


def write_beat(folder: Path, beat: Beat) -> None:
    """Replace the rank's file; a reader sees the old or the new one, never half of it."""
    folder.mkdir(parents=True, exist_ok=True)
    own = asdict(beat) | {"pid": os.getpid(), "host": socket.gethostname()}
    write_whole(folder / f"rank_{beat.rank}.json", json.dumps(own).encode())


def read_beats(folder: Path, ranks: int, not_before: float = 0.0) -> dict[int, Beat]:
    """The last signs of life of the ranks that gave one; those before a moment are of an earlier run."""
    beats = (_read(folder / f"rank_{rank}.json") for rank in range(ranks))
    return {beat.rank: beat for beat in beats if beat is not None and beat.beat >= not_before}


def in_words(beat: Beat, now: float) -> str:
    """One rank's state in a clause, at a wall clock's time."""
    silent = now - beat.beat
    if silent > 60:
        return f"rank {beat.rank} (pid {beat.pid} on {beat.host}) gave no sign of life for {silent:.0f} s"
    place = f", {beat.where}" if beat.where else ""
    return f"rank {beat.rank} in {beat.phase} for {now - beat.since:.0f} s{place}"


def holders(beats: Mapping[int, Beat]) -> list[int]:
    """Ranks that do not wait for others: if the rest waits, these hold it up."""
    waiting = [rank for rank, beat in beats.items() if beat.where.startswith(_WAITING)]
    return sorted(set(beats) - set(waiting)) if waiting else []


def wait_apart(beats: Mapping[int, Beat]) -> bool:
    """All ranks wait for others, but not all in one place: nobody will ever come."""
    places = {beat.where for beat in beats.values()}
    return len(places) > 1 and all(place.startswith(_WAITING) for place in places)


def _read(path: Path) -> Beat | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Beat(**{field.name: data[field.name] for field in fields(Beat)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def where_main_thread_stands() -> str:
    """File, line and function; if it waits for the other ranks, in which collective and who called it."""
    innermost = frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if innermost is None:
        return "ended"
    collective = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if "/torch/distributed/" in file:
            name = frame.f_code.co_name
            collective = name if name != "wrapper" else "a collective"
        elif collective and not any(part in file for part in _MACHINERY):
            return f"{_WAITING} in {collective}, called from {_place(frame)}"
        frame = frame.f_back
    return f"{_WAITING} in {collective}" if collective else f"at {_place(innermost)}"


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
