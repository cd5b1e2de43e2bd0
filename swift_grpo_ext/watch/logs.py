"""Reads what a run of ms-swift left in its output folder."""

import json
import re
from pathlib import Path
from typing import Any

from swift_grpo_ext.errors import OutputFolderError

GAINS = "gains.json"  # what of the trainer was on in a run, and what was not and why; in its output folder
Damaged = list[str] | None


def newest_version(output_dir: str | Path) -> Path:
    """The run's own folder: the newest ``v<number>-<time>`` in ``output_dir``, or ``output_dir`` itself.

    Raises OutputFolderError: There is no such folder, or no run has logged anything in it.
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


def read_logging(output_dir: str | Path, damaged: Damaged = None) -> list[dict[str, Any]]:
    """Records of ``logging.jsonl`` of the newest run in a folder, one per logged step, in order."""
    return read_jsonl(newest_version(output_dir) / "logging.jsonl", damaged)


def read_completions(output_dir: str | Path, damaged: Damaged = None) -> list[dict[str, object]]:
    """Sampled completions of the newest run, one record each, in order: step, prompt, rewards, advantages.

    ms-swift writes one table of columns per logged step, and the last one again when training ends; this
    turns the tables into rows, each once.
    """
    rows: list[dict[str, object]] = []
    previous: dict[str, object] = {}
    for table in read_jsonl(newest_version(output_dir) / "completions.jsonl", damaged):
        if table != previous:
            columns = {name: column for name, column in table.items() if isinstance(column, list)}
            rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=False)]
        previous = table
    return rows


def read_jsonl(path: Path, damaged: Damaged = None) -> list[dict[str, object]]:
    """Records of a JSONL file. A last line that a killed run left half written is dropped.

    Other lines that are no JSON object are passed over, and their places collected in `damaged`; without it
    they raise OutputFolderError, as a missing file does.
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
        elif number < len(lines) and line.strip():
            place = f"{path}:{number}"
            if damaged is None:
                raise OutputFolderError("line is no JSON object", where=place)
            damaged.append(place)
    return records


def _lines(path: Path) -> list[str]:
    """Lines of a file that may be written to at this moment, in the middle of a character.

    Only a newline ends one: ms-swift leaves U+2028 and the like as they are, at which `str.splitlines` cuts.
    """
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        raise OutputFolderError(
            f"{path.name} is missing",
            where=str(path.parent),
            fix="wait for the first step, or name the folder of another run",
        ) from None
    except OSError as error:
        raise OutputFolderError(f"{path.name} cannot be read: {error.strerror}", where=str(path)) from None
    return text.removesuffix("\n").split("\n")
