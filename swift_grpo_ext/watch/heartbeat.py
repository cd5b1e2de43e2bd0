"""Signs of life of the ranks: a small file each in the output folder, which work while collectives hang."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from swift_grpo_ext.folders import write_whole


@dataclass(frozen=True)
class Beat:
    """One rank's last sign of life.

    Attributes:
        rank: Of the process.
        step: Optimizer steps taken.
        phase: Where it is, see `phases.PHASES`.
        since: Wall clock when it got there, in seconds since 1970.
        beat: Wall clock of this sign of life.
        where: Place in the code; empty while all is well.
        pid: Process id on `host`.
        host: Name of its machine.
    """

    rank: int
    step: int
    phase: str
    since: float
    beat: float
    where: str = ""
    pid: int = 0
    host: str = ""


def write_beat(folder: Path, beat: Beat) -> None:
    """Replace the rank's file; a reader sees the old or the new one, never half of it."""
    folder.mkdir(parents=True, exist_ok=True)
    own = asdict(beat) | {"pid": os.getpid(), "host": socket.gethostname()}
    write_whole(_path(folder, beat.rank), json.dumps(own).encode())


def read_beats(folder: Path, ranks: int, not_before: float = 0.0) -> dict[int, Beat]:
    """The last signs of life of ranks 0 to ``ranks - 1``, of those that gave one.

    Args:
        folder: Where they lie.
        ranks: Number of ranks of the run.
        not_before: Wall clock; older ones are of an earlier run.
    """
    beats = (_read(_path(folder, rank)) for rank in range(ranks))
    return {beat.rank: beat for beat in beats if beat is not None and beat.beat >= not_before}


def in_words(beat: Beat, now: float) -> str:
    """One rank's state in a clause.

    Args:
        beat: Its last sign of life.
        now: Wall clock.
    """
    silent = now - beat.beat
    if silent > 60:
        return f"rank {beat.rank} (pid {beat.pid} on {beat.host}) gave no sign of life for {silent:.0f} s"
    place = f", {beat.where}" if beat.where else ""
    return f"rank {beat.rank} in {beat.phase} for {now - beat.since:.0f} s{place}"


def holders(beats: Mapping[int, Beat]) -> list[int]:
    """Ranks that do not wait for others: if the rest waits, these hold it up."""
    waiting = [rank for rank, beat in beats.items() if beat.where.startswith("waiting for")]
    return [] if not waiting else sorted(set(beats) - set(waiting))


def wait_apart(beats: Mapping[int, Beat]) -> bool:
    """All ranks wait for others, but not all in one place: nobody will ever come."""
    places = {beat.where for beat in beats.values()}
    return len(places) > 1 and all(place.startswith("waiting for") for place in places)


def _path(folder: Path, rank: int) -> Path:
    return folder / f"rank_{rank}.json"


def _read(path: Path) -> Beat | None:
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        return Beat(**{field.name: data[field.name] for field in fields(Beat)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def wall_clock_of(monotonic: float) -> float:
    """The wall clock at a moment of ``time.monotonic()``."""
    return time.time() - (time.monotonic() - monotonic)
