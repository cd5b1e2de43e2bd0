"""The first rows of each local dataset, as ms-swift loads them."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from swift_grpo_ext.compat.broken_line import broken_line
from swift_grpo_ext.doctor.check.facts.files import Row
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.errors import DatasetRowError, SwiftGrpoExtError
from swift_grpo_ext.findings import NotKnownError, Problem
from swift_grpo_ext.models.text import HOST_REFUSES, check_tags

MEDIA = ("images", "videos", "audios")
_NOT_LOCAL = ("http:", "https:", "data:", "oss:", "s3:")
_LONGEST_PATH = 200  # longer text is an image in base64
# Errors that loaders raise for rows that they cannot read.
_REFUSALS = (*HOST_REFUSES, OSError, RuntimeError, SwiftGrpoExtError)


@dataclass(frozen=True)
class SeenRow:
    """One row as the trainer sees it."""

    where: str  # file and number of the row
    folder: Path  # of its file
    columns: Row  # columns after ms-swift's preprocessing, which reward functions receive

    @property
    def turns(self) -> list[Row]:
        """All messages."""
        return [turn for turn in self.columns.get("messages") or [] if isinstance(turn, dict)]

    @property
    def prompt(self) -> list[Row]:
        """Messages without the last answer, which GRPO drops."""
        turns = self.turns
        return turns[:-1] if turns and turns[-1].get("role") == "assistant" else turns

    def media(self, kind: str) -> list[Any]:
        """Its images, videos or audios."""
        value = self.columns.get(kind) or []
        return value if isinstance(value, list) else [value]

    def paths(self) -> Iterator[str]:
        """Those of its images, videos and audios that are named by a path."""
        for entry in (entry for kind in MEDIA for entry in self.media(kind)):
            source = entry if isinstance(entry, dict) else {"path": entry}
            name = source.get("path")
            if not isinstance(name, str) or source.get("bytes") is not None:
                continue
            if len(name) <= _LONGEST_PATH and not name.startswith(_NOT_LOCAL):
                yield name

    @property
    def mistags(self) -> str:
        """The fault of its tags, if there is not one for each image, video and sound; else empty."""
        try:
            check_tags(None, self.turns, {kind[:-1]: len(self.media(kind)) for kind in MEDIA})
        except DatasetRowError as error:
            return error.what
        return ""


@dataclass(frozen=True)
class Dataset:
    """A dataset of the command, and its first rows."""

    where: str  # flag and name
    trains: bool  # training data, not evaluation data
    is_here: bool = False  # it is not on a hub, or on another machine
    fault: Problem | None = None  # why it has no rows, or the first that is not a JSON object
    samples: tuple[SeenRow, ...] = ()  # its first rows that ms-swift accepts


@lru_cache(maxsize=8)
def datasets(run: Run) -> tuple[Dataset, ...]:
    """The first rows of each dataset of a run.

    Raises:
        NotKnownError: it is unknown where they are, or what code loads them.
    """
    args = run.arguments
    plugins = run.plugins if "external_plugins" in args.given else ()
    is_registered = args.given & {"custom_register_path", "custom_dataset_info"}
    if is_registered or any("register_dataset" in plugin.text for plugin in plugins):
        raise NotKnownError("rows, which code of the user may load")
    named = {"dataset": decided(args.dataset), **args.said("val_dataset")}
    names = [(flag, name) for flag in named for name in named[flag] or []]
    return tuple(_dataset(run, flag, name) for flag, name in names * bool(run.row_limit))


def samples(run: Run) -> list[SeenRow]:
    """The first rows of all datasets."""
    return [sample for dataset in datasets(run) for sample in dataset.samples]


def _dataset(run: Run, flag: str, name: str) -> Dataset:
    path = run.dataset(name)
    dataset = Dataset(f"--{flag} {name}", flag == "dataset", path is not None)
    if path is None:  # another rule reports a missing path
        return dataset
    path = path.resolve()
    loaded: list[Row] = []
    with suppress(*_REFUSALS), _alone():
        loaded = list(islice(_stream(run, path), run.row_limit))
    fault = None
    if broken := broken_line(path, run.row_limit):
        fault = Problem(broken.what, broken.where, "fix the line")
    elif not loaded:
        what = "ms-swift takes none of its first rows"
        fault = Problem(what, dataset.where, "check the path, the number behind #, and the columns")
    rows = ({name: value for name, value in row.items() if value is not None} for row in loaded)
    samples = (SeenRow(f"{path.name}:{number}", path.parent, row) for number, row in enumerate(rows, 1))
    return replace(dataset, fault=fault, samples=tuple(samples))


def _stream(run: Run, path: Path) -> Iterator[Row]:
    """Stream rows from ms-swift's loader; nothing is written to its cache."""
    from swift.dataset import load_dataset

    said = run.arguments.said("columns", "disable_auto_column_mapping")
    if isinstance(said.get("columns"), str):
        said["columns"] = json.loads(said["columns"])
    yield from load_dataset([str(path)], streaming=True, strict=False, remove_unused_columns=False, **said)[0]


@contextmanager
def _alone() -> Iterator[None]:
    """Context without logging, and without a rank's variables."""
    from unittest.mock import patch  # imported only where rows are read

    own = {name: value for name, value in os.environ.items() if name not in host_table.OF_A_RUN}
    logging.disable(logging.CRITICAL)
    try:
        with patch.dict(os.environ, own, clear=True):
            yield
    finally:
        logging.disable(logging.NOTSET)


def missing_medium(run: Run, row: SeenRow) -> tuple[str, str] | None:
    """An image, a video or a sound of a row that is not where ms-swift looks, and the fix."""
    from swift_grpo_ext.models.images import local_path

    root = Path(run.environ.get("ROOT_IMAGE_DIR") or "")
    for name in row.paths():
        local = local_path(name)
        if run.find(local) or run.find(str(root / local)):  # in the working folder, else in ROOT_IMAGE_DIR
            continue
        if (row.folder / name).is_file():
            fix = f"export ROOT_IMAGE_DIR={row.folder}, or start the run there, or write absolute paths"
            return f"{name} lies beside the dataset, where ms-swift does not look", fix
        if not run.command.makes_files:  # a program of the script may write it
            return f"{name} not found", "fix or drop the row"
    return None
