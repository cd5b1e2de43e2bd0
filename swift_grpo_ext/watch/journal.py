"""What the monitors write: the folder ``watch/`` with its events, and their state in a checkpoint."""

import base64
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from swift.utils import get_logger

from swift_grpo_ext.folders import write_whole
from swift_grpo_ext.watch.logs import read_jsonl

logger = get_logger()

FOLDER = "watch"
EVENTS = "events.jsonl"
STATE = "swift_grpo_ext_watch_rank_{rank}.json"


class Journal:
    """Appends events to ``watch/events.jsonl``. Several ranks may do so: each event is one short write."""

    def __init__(self, output_dir: str | Path, rank: int) -> None:
        self.folder = Path(output_dir) / FOLDER
        self.rank = rank
        self._could_not = False

    def write(self, action: Callable[[], object]) -> None:
        """Do something that writes into the folder, which is made if it is missing.

        Where it cannot (the disk is full), that is told of once: the run must not end because it is watched.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            action()
        except OSError as error:
            if not self._could_not:
                self._could_not = True
                told = f"cannot write to {self.folder}, the run goes on without: {error}"
                print(f"swift-grpo-ext [watch] {told}", file=sys.stderr, flush=True)

    def add(self, kind: str, **facts: object) -> None:
        """Write an event: ``verdict``, ``note``, ``numerics``, ``stall``, ``failed``, ``stopped`` ...."""
        event = {"time": time.time(), "kind": kind, "rank": self.rank, **facts}
        line = json.dumps(event, ensure_ascii=False, default=str) + "\n"

        def append() -> None:
            with open(self.folder / EVENTS, "a", encoding="utf-8", errors="replace") as file:
                file.write(line)

        self.write(append)

    def note(self, name: str, step: int, text: str) -> None:
        """Say on the first rank, and write down, what is worth knowing and no fault; nothing of nothing."""
        if self.rank == 0 and text:
            logger.info(f"swift-grpo-ext [{name}] {text}")
            self.add("note", step=step, id=name, text=text)


def read_events(output_dir: str | Path, kinds: Iterable[str] = ()) -> list[dict[str, object]]:
    """Events of a run in order, of some kinds or all; none if it was not watched."""
    path = Path(output_dir) / FOLDER / EVENTS
    if not path.is_file():
        return []
    wanted = set(kinds)
    return [event for event in read_jsonl(path, damaged=[]) if not wanted or event.get("kind") in wanted]


def write_state(checkpoint: Path, rank: int, state: Mapping[str, object]) -> None:
    """Keep a rank's state in a checkpoint; a disk that is full costs a warning, not the run."""
    try:
        text = json.dumps(state, default=_encoded, skipkeys=True)
        write_whole(checkpoint / STATE.format(rank=rank), text.encode())
    except OSError as error:
        logger.warning(f"swift-grpo-ext [watch] a run resumed here begins its monitors anew: {error}")


def read_state(checkpoint: Path, rank: int) -> dict[str, Any] | None:
    """The state of a rank; None if the checkpoint has none that can be read."""
    path = checkpoint / STATE.format(rank=rank)
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), object_hook=_decoded)
    except ValueError:
        logger.warning(f"swift-grpo-ext [watch] {path} is damaged: the monitors begin anew")
        return None
    return state


def _encoded(value: object) -> object:
    """What JSON does not know: bytes (of images in memory) as base64, else nothing of it."""
    if isinstance(value, bytes):
        return {"__base64__": base64.b64encode(value).decode("ascii")}
    return dict(value) if isinstance(value, Mapping) else None


def _decoded(value: dict[str, Any]) -> object:
    return base64.b64decode(value["__base64__"]) if "__base64__" in value else value
