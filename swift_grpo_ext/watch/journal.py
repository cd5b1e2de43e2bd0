"""The folder ``watch/`` in a run's output folder, and the events written there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = "watch"
EVENTS = "events.jsonl"


class Journal:
    """Appends events to ``watch/events.jsonl``. Several ranks may do so: each event is one short write.

    Args:
        output_dir: The run's own output folder.
        rank: Of this process.
    """

    def __init__(self, output_dir: str | Path, rank: int) -> None:
        self.folder = Path(output_dir) / FOLDER
        self.rank = rank

    def add(self, kind: str, **facts: Any) -> None:
        """Write one event: ``verdict``, ``numerics``, ``stall``, ``failed``, ``stopped``, ``resumed``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        event = {"time": time.time(), "kind": kind, "rank": self.rank, **facts}
        with open(self.folder / EVENTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")


def read_events(output_dir: str | Path, kinds: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Events of a run in order, of some kinds or all; none if the run was not watched.

    A line that a killed run left half written is passed over.
    """
    path = Path(output_dir) / FOLDER / EVENTS
    if not path.is_file():
        return []
    wanted = set(kinds)
    events = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(event, dict) and (not wanted or event.get("kind") in wanted):
            events.append(event)
    return events
