"""The first rows of each local dataset: as they stand, as ms-swift loads them, and through the template."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from swift_grpo_ext.doctor.check.facts.environment import environment
from swift_grpo_ext.doctor.check.facts.files import Row, drawn, rows_of
from swift_grpo_ext.doctor.check.facts.media import TAGS, Media, media_of
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.unknown import Unknown, decided
from swift_grpo_ext.errors import SwiftGrpoExtError

_FILES = (".jsonl", ".json", ".csv", ".parquet", ".txt", ".arrow")
_PIXEL_VARIABLES = (
    *("MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM", "IMAGE_MIN_TOKEN_NUM", "VIDEO_MAX_PIXELS", "FPS"),
    *("FPS_MAX_FRAMES", "ROOT_IMAGE_DIR", "USE_HF"),
)
# What loaders, templates, and we, raise for rows that they cannot read.
_REFUSALS = (
    *(ValueError, TypeError, LookupError, AssertionError, AttributeError, OSError, RuntimeError),
    SwiftGrpoExtError,
)


@dataclass(frozen=True)
class SeenRow:
    """One row as the trainer sees it."""

    where: str  # file and line, or number of the row
    columns: Row  # columns after the host's preprocessing; those are what reward functions receive
    media: Media = field(default_factory=dict)  # its images, videos and audio
    tokens: int = 0  # of the prompt with its images; 0 where it was not sent through the template

    @property
    def turns(self) -> list[Row]:
        """All messages."""
        return [turn for turn in self.columns.get("messages") or [] if isinstance(turn, dict)]

    @property
    def prompt(self) -> list[Row]:
        """Messages without the last answer, as GRPO cuts it off."""
        turns = self.turns
        return turns[:-1] if turns and turns[-1].get("role") == "assistant" else turns

    def tags(self, kind: str) -> int:
        """How many tags of a kind of media its text has."""
        return sum(str(turn.get("content", "")).count(TAGS[kind]) for turn in self.turns)

    @property
    def mistagged(self) -> list[str]:
        """Kinds of media with tags, and not one for each."""
        return [kind for kind in self.media if self.tags(kind) not in (0, len(self.media[kind]))]

    @property
    def is_sound(self) -> bool:
        """It can be sent through the template: it has a prompt, and its media are there."""
        faults = any(medium.fault for medium in chain(*self.media.values()))
        return bool(self.prompt) and not faults and not self.mistagged


@dataclass(frozen=True)
class Dataset:
    """A dataset as the command names it, and its first rows."""

    where: str  # flag and name
    trains: bool  # it is training data, and not for evaluation
    elsewhere: bool = False  # no file here: of a hub, or of another machine
    empty: str = ""  # why it has no rows
    unreadable: tuple[str, ...] = ()  # places of rows that are no JSON object
    samples: tuple[SeenRow, ...] = ()  # those that it takes


@lru_cache(maxsize=8)
def datasets(run: Run) -> tuple[Dataset, ...]:
    """The first rows of each dataset of a run, and how long the template makes them.

    Raises:
        NotKnownError: where they are is not known.
    """
    named = {"dataset": decided(run.arguments.dataset), **_said(run, "val_dataset")}
    read = [_dataset(run, flag, name) for flag in named for name in (named[flag] or []) * bool(run.row_limit)]
    return tuple(_encoded(run, read)) if any(sample.is_sound for sample in samples_of(read)) else tuple(read)


def samples_of(read: Iterator[Dataset] | list[Dataset] | tuple[Dataset, ...]) -> list[SeenRow]:
    """All rows of some datasets."""
    return [sample for dataset in read for sample in dataset.samples]


def training(run: Run) -> list[SeenRow]:
    """The first rows of the training data."""
    return samples_of([dataset for dataset in datasets(run) if dataset.trains])


def _dataset(run: Run, flag: str, name: str) -> Dataset:
    path, number = run.dataset(name)
    dataset = Dataset(f"--{flag} {name}", flag == "dataset")
    if number == 0:
        return replace(dataset, empty="#0 draws no row")
    if path is None:
        is_path = drawn(name)[0].endswith(_FILES) or name.startswith(("/", "./", "../", "~"))
        return replace(dataset, elsewhere=not is_path)  # of a path that is not there another rule tells
    path = path.resolve()
    if not any(path.iterdir()) if path.is_dir() else path.stat().st_size == 0:
        return replace(dataset, empty=f"the {'folder' if path.is_dir() else 'file'} is empty")
    lines: list[int] = []
    if path.suffix in (".jsonl", ".json") and path.is_file():
        rows = list(islice(rows_of(path), run.row_limit))
        lines = [line for line, _ in rows]
        if broken := tuple(f"{path.name}:{line}" for line, row in rows if row is None):
            return replace(dataset, unreadable=broken)
    loaded: list[Row] = []
    with suppress(*_REFUSALS):
        loaded = list(islice(_stream(run, path), run.row_limit))
    if not loaded:
        return replace(dataset, empty="ms-swift takes none of its first rows")
    is_numbered = len(loaded) == len(lines)
    where = [
        f"{path.name}:{lines[row]}" if is_numbered else f"{path.name} row {row + 1}"
        for row in range(len(loaded))
    ]
    samples = (_sample(run, place, row, path.parent) for place, row in zip(where, loaded, strict=True))
    return replace(dataset, samples=tuple(samples))


def _sample(run: Run, where: str, row: Row, folder: Path) -> SeenRow:
    columns = {name: value for name, value in row.items() if value is not None}
    media = media_of(run, columns, folder)
    columns |= {kind: [medium.entry for medium in media[kind]] for kind in media if media[kind]}
    return SeenRow(where, columns, media)


def _said(run: Run, *names: str) -> dict[str, Any]:
    """Arguments that are given here, whatever others another word may hold."""
    values = {name: run.arguments.values.get(name) for name in names}
    return {
        name: value for name, value in values.items() if value is not None and not isinstance(value, Unknown)
    }


def _stream(run: Run, path: Path) -> Iterator[Row]:
    """Rows as the host's loader gives them, one by one; nothing is written to its cache."""
    said = _said(run, "columns", "disable_auto_column_mapping")
    if isinstance(said.get("columns"), str):
        said["columns"] = json.loads(said["columns"])
    with _alone():
        from swift.dataset import load_dataset  # which logs that it was

        train, _ = load_dataset(
            [str(path)], streaming=True, strict=False, remove_unused_columns=False, **said
        )
        yield from train


@contextmanager
def _alone() -> Iterator[None]:
    """No log of the host and its packages, and no waiting for other ranks, which load nothing now."""
    from swift.utils import get_logger

    get_logger()  # sets its level when it is made
    loggers = [logging.getLogger(name) for name in ("swift", "ms-swift", "datasets", "modelscope")]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        with environment({name: value for name, value in os.environ.items() if name not in ranks}):
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _encoded(run: Run, read: list[Dataset]) -> Iterator[Dataset]:
    """The sound rows sent through the template, if the model's files are here."""
    folder = run.find(str(run.arguments.model or "-"))
    template = None
    pixels = {name: run.environ[name] for name in _PIXEL_VARIABLES if name in run.environ}
    with environment({**os.environ, **pixels}):
        if folder is not None and (folder / "tokenizer_config.json").is_file():
            with suppress(*_REFUSALS):  # ms-swift says so itself
                template = _template(run, folder)
        for dataset in read:
            yield replace(dataset, samples=tuple(_through(template, sample) for sample in dataset.samples))


def _through(template: Any, sample: SeenRow) -> SeenRow:
    with suppress(*_REFUSALS):  # a row that the template refuses is named in the run
        if template is not None and sample.is_sound:
            encoded = template.encode({**sample.columns, "messages": sample.prompt})
            return replace(sample, tokens=len(encoded["input_ids"]))
    return sample


def _template(run: Run, folder: Path) -> Any:
    from swift.arguments import BaseArguments
    from swift.pipelines import prepare_model_template

    if "templates" in run.parts:
        from swift_grpo_ext.models import register

        register()
    said = _said(run, "model_type", "template", "max_pixels")
    arguments = BaseArguments(model=str(folder), load_args=False, use_hf=True, **said)
    _, template = prepare_model_template(arguments, load_model=False)
    template.max_length = None
    return template
