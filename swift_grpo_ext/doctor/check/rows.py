"""The first rows of each local dataset: read as they stand, then as the host's own loader makes them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from swift_grpo_ext.doctor.check import encoded, media
from swift_grpo_ext.doctor.check.environment import environment
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Finding, Severity

_MOST_BYTES = 64 * 2**20
_FILES = (".jsonl", ".json", ".csv", ".parquet", ".txt", ".arrow")
# What the loaders of datasets, pyarrow and the host raise for data that they cannot read.
_REFUSALS = (ValueError, TypeError, LookupError, AssertionError, AttributeError, OSError, RuntimeError)
Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """One row as the trainer sees it."""

    where: str  # file and line, or number of the row
    columns: Row  # columns after the host's preprocessing; those are what reward functions receive
    folder: Path = field(default=Path("."))  # where the dataset lies

    @property
    def prompt(self) -> list[Row]:
        """Messages without the last answer, as GRPO cuts it off."""
        turns = [turn for turn in self.columns.get("messages") or [] if isinstance(turn, dict)]
        return turns[:-1] if turns and turns[-1].get("role") == "assistant" else turns


def read(run: Run, limit: int) -> tuple[list[Sample], list[Finding]]:
    """Rows of the training data, and what is wrong with them and with the data for evaluation."""
    samples: list[Sample] = []
    found: list[Finding] = []
    args = run.arguments
    for flag, names in (("--dataset", args.dataset or []), ("--val_dataset", args.val_dataset or [])):
        for name in names:
            if limit <= 0:
                continue
            own: list[Sample] = []
            found += _of_dataset(run, flag, name, limit, own)
            samples += own if flag == "--dataset" else []
    return samples, found


def _of_dataset(run: Run, flag: str, name: str, limit: int, samples: list[Sample]) -> Iterator[Finding]:
    base, number = drawn(name) if run.find(name) is None else (name, None)
    if number == 0:
        yield Finding("dataset-empty", Severity.ERROR, "#0 draws no row", f"{flag} {name}", "e.g. #1000")
    path = run.find(base) or run.find(base.rsplit(":", 1)[0])
    if path is None:
        if not base.endswith(_FILES) and not base.startswith(("/", "./", "../", "~")):
            what = "not a file here: its rows were not checked"
            yield Finding(
                "dataset-elsewhere", Severity.NOTE, what, f"{flag} {name}", "check again with a local copy"
            )
        return
    path = path.resolve()
    lines, faults = _as_they_stand(path, limit)
    yield from faults
    if faults:
        return
    yield from _as_the_host_reads(run, path, limit, lines, samples)
    yield from _media_and_template(run, samples)


def drawn(name: str) -> tuple[str, int | None]:
    """Path and number of rows of ``path#number``."""
    head, _, tail = name.rpartition("#")
    return (head, int(tail)) if head and tail.isdecimal() else (name, None)


def _as_they_stand(path: Path, limit: int) -> tuple[list[int], list[Finding]]:
    """Line numbers of the first rows of a JSON file, and those that are none."""
    if path.is_dir():
        empty = not any(path.iterdir())
        what = "the folder is empty"
        return [], [
            Finding("dataset-empty", Severity.ERROR, what, path.name, "check the path")
        ] if empty else []
    if path.stat().st_size == 0:
        return [], [
            Finding("dataset-empty", Severity.ERROR, "the file is empty", path.name, "check the path")
        ]
    if path.suffix not in (".jsonl", ".json"):
        return [], []
    lines, faults = [], []
    for number, row in islice(rows_of(path), limit):
        if row is None:
            what = "the row is no JSON object"
            faults.append(
                Finding("row-unreadable", Severity.ERROR, what, f"{path.name}:{number}", "fix the line")
            )
        lines.append(number)
    return lines, faults


def rows_of(path: Path) -> Iterator[tuple[int, Row | None]]:
    """Rows with their line numbers; None for one that is no object."""
    with path.open(encoding="utf-8", errors="replace") as file:
        begins_a_list = path.suffix == ".json" and file.read(4096).lstrip().startswith("[")
    if begins_a_list:
        if path.stat().st_size > _MOST_BYTES:
            return
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            table = [None]
        for number, row in enumerate(table, start=1):
            yield number, row if isinstance(row, dict) else None
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError:
                    row = None
                yield number, row if isinstance(row, dict) else None


def _as_the_host_reads(
    run: Run, path: Path, limit: int, lines: list[int], samples: list[Sample]
) -> Iterator[Finding]:
    """Load the first rows with the host's loader, strictly; if it refuses, as a run does: without the row."""
    refusal = ""
    for strict in (True, False):
        try:
            loaded = list(islice(_stream(run, path, strict=strict), limit))
            break
        except _REFUSALS as error:
            refusal = refusal or f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    else:
        yield Finding("dataset-unreadable", Severity.ERROR, refusal[:300], path.name, "fix the file")
        return
    whole = not refusal and len(loaded) == len(lines)
    for number, columns in enumerate(loaded):
        where = f"{path.name}:{lines[number]}" if whole else f"{path.name} row {number + 1}"
        samples.append(Sample(where, {k: v for k, v in columns.items() if v is not None}, path.parent))
    if refusal:
        what = f"ms-swift drops rows of it: {refusal[:300]}"
        severity = Severity.WARNING if loaded else Severity.ERROR
        yield Finding(
            "row-dropped", severity, what, path.name, "fix the rows, --strict true names them in a run"
        )
    elif not loaded:
        yield Finding("dataset-empty", Severity.ERROR, "it has no rows", path.name, "check the path")


def _stream(run: Run, path: Path, *, strict: bool) -> Iterator[Row]:
    """Rows as the host's loader gives them, one by one; nothing is written to its cache."""
    from swift.dataset import load_dataset

    columns = run.arguments.columns
    with _alone():
        train, _ = load_dataset(
            [str(path)],
            streaming=True,
            strict=strict,
            remove_unused_columns=False,
            columns=json.loads(columns) if isinstance(columns, str) else columns,
            disable_auto_column_mapping=bool(run.arguments.disable_auto_column_mapping),
        )
        yield from train


def _media_and_template(run: Run, samples: list[Sample]) -> Iterator[Finding]:
    sound = []
    for sample in samples:
        if not sample.prompt:
            yield Finding(
                "row-no-prompt", Severity.ERROR, "no message of a user", sample.where, "add messages or query"
            )
            continue
        faults = list(media.findings(run, sample.where, sample.columns, sample.folder))
        yield from faults
        if not any(fault.severity is Severity.ERROR for fault in faults):
            sound.append((sample.where, {**sample.columns, "messages": sample.prompt}))
    yield from encoded.findings(run, sound)


@contextmanager
def _alone() -> Iterator[None]:
    """No log of the host and its packages, and no waiting for other ranks, which load nothing now."""
    names = ("swift", "ms-swift", "datasets", "modelscope")
    before = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        with environment({name: value for name, value in os.environ.items() if name not in ranks}):
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
