"""The first rows of each local dataset: as they stand, as ms-swift loads them, and through the template."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.doctor.check.facts.environment import environment
from swift_grpo_ext.doctor.check.facts.files import Row, drawn, rows_of
from swift_grpo_ext.doctor.check.facts.media import TAGS, Media, media_of
from swift_grpo_ext.errors import SwiftGrpoExtError

if TYPE_CHECKING:
    from swift_grpo_ext.doctor.check.facts.run import Run

_FILES = (".jsonl", ".json", ".csv", ".parquet", ".txt", ".arrow")


@dataclass(frozen=True)
class Encoded:
    """What the template makes of a row's prompt."""

    refusal: str = ""  # why it takes none
    tokens: int = 0  # of the prompt, with its images


@dataclass(frozen=True)
class Sample:
    """One row as the trainer sees it."""

    where: str  # file and line, or number of the row
    columns: Row  # columns after the host's preprocessing; those are what reward functions receive
    folder: Path = Path()  # where the dataset lies
    media: Media = field(default_factory=dict)  # its images, videos and audio
    encoded: Encoded | None = None  # None: it was not sent through the template

    @property
    def prompt(self) -> list[Row]:
        """Messages without the last answer, as GRPO cuts it off."""
        turns = self.turns
        return turns[:-1] if turns and turns[-1].get("role") == "assistant" else turns

    @property
    def turns(self) -> list[Row]:
        """All messages."""
        return [turn for turn in self.columns.get("messages") or [] if isinstance(turn, dict)]

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
    refusal: str = ""  # why ms-swift's loader does not take some of them
    samples: tuple[Sample, ...] = ()  # those that it takes


@dataclass(frozen=True)
class Data:
    """What was read of a run's data."""

    run: Run
    datasets: tuple[Dataset, ...] = ()
    tokenizer: bool = True  # the model's tokenizer is here
    no_template: str = ""  # why ms-swift finds no template

    @property
    def samples(self) -> list[Sample]:
        """All rows."""
        return [sample for dataset in self.datasets for sample in dataset.samples]

    @property
    def training(self) -> list[Sample]:
        """The rows of the training data."""
        return [sample for dataset in self.datasets if dataset.trains for sample in dataset.samples]


def read(run: Run, limit: int) -> Data:
    """So many rows of each dataset of a run, and what the template makes of them."""
    if limit <= 0:
        return Data(run)
    datasets = [
        _dataset(run, flag, name, limit)
        for flag in ("dataset", "val_dataset")
        for name in run.arguments.get(flag) or []
    ]
    data = Data(run, tuple(datasets))
    return _encoded(data) if any(sample.is_sound for sample in data.samples) else data


def _dataset(run: Run, flag: str, name: str, limit: int) -> Dataset:
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
        rows = list(islice(rows_of(path), limit))
        lines = [line for line, _ in rows]
        broken = tuple(f"{path.name}:{line}" for line, row in rows if row is None)
        if broken:
            return replace(dataset, unreadable=broken)
    return _loaded(run, dataset, path, limit, lines)


def _loaded(run: Run, dataset: Dataset, path: Path, limit: int, lines: list[int]) -> Dataset:
    """Load the first rows with ms-swift's loader, strictly; if it refuses, as a run does: without the row."""
    refusal = ""
    rows: list[Row] | None = None
    for strict in (True, False):
        try:
            rows = list(islice(_stream(run, path, strict=strict), limit))
            break
        except REFUSALS as error:
            refusal = refusal or f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:300]
    if rows is None or (not rows and not refusal):
        return replace(dataset, refusal=refusal, empty="" if refusal else "it has no rows")
    numbered = not refusal and len(rows) == len(lines)
    samples = []
    for number, row in enumerate(rows):
        where = f"{path.name}:{lines[number]}" if numbered else f"{path.name} row {number + 1}"
        samples.append(_sample(run, where, row, path.parent))
    return replace(dataset, refusal=refusal, samples=tuple(samples))


def _sample(run: Run, where: str, row: Row, folder: Path) -> Sample:
    columns = {name: value for name, value in row.items() if value is not None}
    media = media_of(run, columns, folder)
    columns |= {kind: [medium.entry for medium in media[kind]] for kind in media if media[kind]}
    return Sample(where, columns, folder, media)


def _stream(run: Run, path: Path, *, strict: bool) -> Iterator[Row]:
    """Rows as the host's loader gives them, one by one; nothing is written to its cache."""
    columns = run.arguments.columns
    with _alone():
        from swift.dataset import load_dataset  # which logs that it was

        train, _ = load_dataset(
            [str(path)],
            streaming=True,
            strict=strict,
            remove_unused_columns=False,
            columns=json.loads(columns) if isinstance(columns, str) else columns,
            disable_auto_column_mapping=run.arguments.disable_auto_column_mapping,
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


_PIXEL_VARIABLES = """
    MAX_PIXELS MIN_PIXELS IMAGE_MAX_TOKEN_NUM IMAGE_MIN_TOKEN_NUM VIDEO_MAX_PIXELS FPS FPS_MAX_FRAMES
    ROOT_IMAGE_DIR USE_HF
    """

# What loaders, templates, and we, raise for rows that they cannot read.
_OF_OTHERS = (ValueError, TypeError, LookupError, AssertionError, AttributeError, OSError, RuntimeError)
REFUSALS = (*_OF_OTHERS, SwiftGrpoExtError)


def _encoded(data: Data) -> Data:
    """The sound rows sent through the template, if the model's files are here."""
    run = data.run
    folder = run.find(str(run.arguments.model or "-"))
    if folder is None or not (folder / "tokenizer_config.json").is_file():
        return replace(data, tokenizer=False)
    pixels = {name: run.environ[name] for name in _PIXEL_VARIABLES.split() if name in run.environ}
    with environment({**os.environ, **pixels}):
        try:
            template = _template(run, folder)
        except REFUSALS as error:
            return replace(data, no_template=f"{type(error).__name__}: {error}".splitlines()[0][:400])
        datasets = [
            replace(dataset, samples=tuple(_through(template, sample) for sample in dataset.samples))
            for dataset in data.datasets
        ]
    return replace(data, datasets=tuple(datasets))


def _through(template: Any, sample: Sample) -> Sample:
    if not sample.is_sound:
        return sample
    try:
        encoded = template.encode({**sample.columns, "messages": sample.prompt})
    except REFUSALS as error:
        return replace(sample, encoded=Encoded(f"{type(error).__name__}: {error}"[:400]))
    return replace(sample, encoded=Encoded(tokens=len(encoded["input_ids"])))


def _template(run: Run, folder: Path) -> Any:
    from swift.arguments import BaseArguments
    from swift.pipelines import prepare_model_template

    if "templates" in run.parts:
        from swift_grpo_ext.models import register

        register()
    args = run.arguments
    wanted = {"model_type": args.model_type, "template": args.template, "max_pixels": args.max_pixels}
    given = {name: value for name, value in wanted.items() if value is not None}
    arguments = BaseArguments(model=str(folder), load_args=False, use_hf=True, **given)
    _, template = prepare_model_template(arguments, load_model=False)
    template.max_length = None
    return template
