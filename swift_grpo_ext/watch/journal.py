"""Files of a run in its output folder: ms-swift's logs, and the events of the monitors."""

import json
import re
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.once import Once

FOLDER = "watch"
EVENTS = "events.jsonl"
GAINS = "gains.json"  # in the output folder: the trainer's features, each on, or off with the reason


class Journal:
    """Appends events to ``watch/events.jsonl``. Several ranks may do so: each event is one short write."""

    def __init__(self, output_dir: str | Path, rank: int) -> None:
        self.folder = Path(output_dir) / FOLDER
        self.rank = rank
        self._warn = Once(lambda text: print(f"swift-grpo-ext [watch] {text}", file=sys.stderr, flush=True))

    def write(self, action: Callable[[], object]) -> None:
        """Write into the folder; if that fails (the disk is full), warn once: it must not end the run."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            action()
        except OSError as error:
            self._warn(f"cannot write to {self.folder}, continuing without it: {error}", about="write")

    def add(self, kind: str, **facts: object) -> None:
        """Write an event: ``verdict``, ``bill``, ``numerics``, ``stall``, ``failed``, ``stopped`` ...."""
        event = {"time": time.time(), "kind": kind, "rank": self.rank, **facts}
        line = json.dumps(event, ensure_ascii=False, default=str) + "\n"

        def append() -> None:
            with open(self.folder / EVENTS, "a", encoding="utf-8", errors="replace") as file:
                file.write(line)

        self.write(append)


def read_events(output_dir: str | Path, kinds: Collection[str] = ()) -> list[dict[str, Any]]:
    """Events of a run in order, of some kinds or all; empty if it was not watched."""
    path = Path(output_dir) / FOLDER / EVENTS
    if not path.is_file():
        return []
    return [event for event in read_jsonl(path) if not kinds or event.get("kind") in kinds]


def newest_version(output_dir: str | Path) -> Path:
    """The run's own folder: the newest ``v<number>-<time>`` in ``output_dir``, or ``output_dir`` itself.

    Raises:
        OutputFolderError: The folder does not exist, or no run has logged anything in it.
    """
    output = Path(output_dir)
    if (output / "logging.jsonl").is_file():
        return output
    versions = [folder for folder in output.glob("v*-*") if re.match(r"v\d+-", folder.name)]
    if not versions:
        raise OutputFolderError(
            "no run of ms-swift was found", where=str(output), fix="give the --output_dir of a run"
        )
    return max(versions, key=lambda folder: int(folder.name[1:].split("-")[0]))


def read_logging(output_dir: str | Path) -> list[dict[str, Any]]:
    """Records of ``logging.jsonl`` of the newest run in a folder, one per logged step, in order."""
    return read_jsonl(newest_version(output_dir) / "logging.jsonl")


def read_completions(output_dir: str | Path) -> list[dict[str, object]]:
    """Sampled completions of the newest run, one record each, in order: step, prompt, rewards, advantages.

    ms-swift writes one table of columns per logged step, and the last one again when training ends; this
    turns the tables into rows without the repetition.
    """
    rows: list[dict[str, object]] = []
    previous: dict[str, object] = {}
    for table in read_jsonl(newest_version(output_dir) / "completions.jsonl"):
        if table != previous:
            columns = {name: column for name, column in table.items() if isinstance(column, list)}
            rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=False)]
        previous = table
    return rows


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Records of a JSONL file. A partial last line, left by a killed run, is dropped.

    Other lines that are not a JSON object are left out with a warning.

    Raises:
        OutputFolderError: The file cannot be read.
    """
    lines = _lines(path)
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif number < len(lines):
            print(f"swift-grpo-ext: left out, as it is no JSON object: {path}:{number}", file=sys.stderr)
    return records


def _lines(path: Path) -> list[str]:
    """Lines of a file that may end inside a character; ms-swift writes U+2028, where `splitlines` splits.

    Raises:
        OutputFolderError: The file cannot be read.
    """
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise OutputFolderError(
            f"{path.name}: {error.strerror}",
            where=str(path.parent),
            fix="wait for the first step, or name the folder of another run",
        ) from None
    return text.removesuffix("\n").split("\n")
