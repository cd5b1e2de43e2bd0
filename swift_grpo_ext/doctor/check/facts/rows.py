"""The first rows of each local dataset, loaded by ms-swift and turned into prompts by its template."""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from swift_grpo_ext.compat.broken_line import broken_line
from swift_grpo_ext.doctor.check.facts.files import Row, drawn
from swift_grpo_ext.doctor.check.facts.media import Media, media_of
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.errors import DatasetRowError, SwiftGrpoExtError
from swift_grpo_ext.findings import NotKnownError
from swift_grpo_ext.models.text import HOST_REFUSES, check_tags

_FILES = (".jsonl", ".json", ".csv", ".parquet", ".txt", ".arrow")
_PIXEL_VARIABLES = (
    "MAX_PIXELS",
    "MIN_PIXELS",
    "IMAGE_MAX_TOKEN_NUM",
    "IMAGE_MIN_TOKEN_NUM",
    "VIDEO_MAX_PIXELS",
    "FPS",
    "FPS_MAX_FRAMES",
    "ROOT_IMAGE_DIR",
    "USE_HF",
)
# Errors that loaders, templates and this package raise for rows that they cannot read.
_REFUSALS = (*HOST_REFUSES, OSError, RuntimeError, SwiftGrpoExtError)


@dataclass(frozen=True)
class SeenRow:
    """One row as the trainer sees it."""

    where: str  # file and number of the row
    columns: Row  # columns after ms-swift's preprocessing, which reward functions receive
    media: Media = field(default_factory=dict)  # its images, videos and audio
    tokens: int = 0  # of the prompt with its images; 0 if it was not encoded

    @property
    def turns(self) -> list[Row]:
        """All messages."""
        return [turn for turn in self.columns.get("messages") or [] if isinstance(turn, dict)]

    @property
    def prompt(self) -> list[Row]:
        """Messages without the last answer, which GRPO drops."""
        turns = self.turns
        return turns[:-1] if turns and turns[-1].get("role") == "assistant" else turns

    @property
    def has_media(self) -> bool:
        """True if it has an image, a video or audio; otherwise tags in its text are just text."""
        return any(self.media.values())

    @property
    def mistags(self) -> tuple[str, ...]:
        """The fault of the tags, if a kind of media has some but not one for each medium; else empty."""
        try:
            check_tags(None, self.turns, {kind[:-1]: len(media) for kind, media in self.media.items()})
        except DatasetRowError as error:
            return (error.what,)
        return ()


@dataclass(frozen=True)
class Dataset:
    """A dataset of the command, and its first rows."""

    where: str  # flag and name
    trains: bool  # training data, not evaluation data
    elsewhere: bool = False  # no file here: of a hub, or of another machine
    empty: str = ""  # why it has no rows
    unreadable: DatasetRowError | None = None  # its first row that is not a JSON object
    samples: tuple[SeenRow, ...] = ()  # its first rows that ms-swift accepts


@lru_cache(maxsize=8)
def datasets(run: Run) -> tuple[Dataset, ...]:
    """The first rows of each dataset of a run, with the length of each prompt.

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
    read = [_dataset(run, flag, name) for flag, name in names * bool(run.row_limit)]
    return tuple(_encoded(run, read)) if read else ()


def samples_of(read: Sequence[Dataset]) -> list[SeenRow]:
    """All rows of some datasets."""
    return [sample for dataset in read for sample in dataset.samples]


def training(run: Run) -> list[SeenRow]:
    """The first rows of the training data."""
    return samples_of([dataset for dataset in datasets(run) if dataset.trains])


def _dataset(run: Run, flag: str, name: str) -> Dataset:
    path = run.dataset(name)
    dataset = Dataset(f"--{flag} {name}", flag == "dataset")
    if path is None:
        is_path = drawn(name).endswith(_FILES) or name.startswith(("/", "./", "../", "~"))
        return replace(dataset, elsewhere=not is_path)  # another rule reports a missing path
    path = path.resolve()
    dataset = replace(dataset, unreadable=broken_line(path, run.row_limit))
    loaded: list[Row] = []
    with suppress(*_REFUSALS), _alone(run):
        loaded = list(islice(_stream(run, path), run.row_limit))
    if not loaded and not dataset.unreadable:
        return replace(dataset, empty="ms-swift takes none of its first rows")
    samples = (
        _sample(run, f"{path.name}:{number}", row, path.parent) for number, row in enumerate(loaded, 1)
    )
    return replace(dataset, samples=tuple(samples))


def _sample(run: Run, where: str, row: Row, folder: Path) -> SeenRow:
    columns = {name: value for name, value in row.items() if value is not None}
    media = media_of(run, columns, folder)
    columns |= {kind: [medium.entry for medium in media[kind]] for kind in media if media[kind]}
    return SeenRow(where, columns, media)


def _stream(run: Run, path: Path) -> Iterator[Row]:
    """Stream rows from ms-swift's loader; nothing is written to its cache."""
    from swift.dataset import load_dataset

    said = run.arguments.said("columns", "disable_auto_column_mapping")
    if isinstance(said.get("columns"), str):
        said["columns"] = json.loads(said["columns"])
    yield from load_dataset([str(path)], streaming=True, strict=False, remove_unused_columns=False, **said)[0]


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """Context with the run's pixel limits, without logging, and without a rank's variables."""
    from unittest.mock import patch  # imported only where rows are read

    values = ((name, run.environ.get(name)) for name in _PIXEL_VARIABLES)
    pixels = {name: value for name, value in values if isinstance(value, str)}
    own = {name: value for name, value in os.environ.items() if name not in host_table.OF_A_RUN}
    logging.disable(logging.CRITICAL)
    try:
        with patch.dict(os.environ, {**own, **pixels}, clear=True):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _encoded(run: Run, read: list[Dataset]) -> Iterator[Dataset]:
    """Encode the rows with the template, if they are sound and the model's files are here."""
    folder = run.find(str(run.arguments.model or "-")) if samples_of(read) else None
    template = None
    with _alone(run):
        if folder is not None and (folder / "tokenizer_config.json").is_file():
            with suppress(*_REFUSALS):  # ms-swift reports it itself
                template = _template(run, folder)
        for dataset in read:
            yield replace(dataset, samples=tuple(_through(template, sample) for sample in dataset.samples))


def _through(template: Any, sample: SeenRow) -> SeenRow:
    is_broken = (sample.mistags and sample.has_media) or any(
        medium.fault for medium in chain(*sample.media.values())
    )
    with suppress(*_REFUSALS):  # a row that the template refuses is named in the run
        if template is not None and not is_broken:
            encoded = template.encode({**sample.columns, "messages": sample.prompt})
            return replace(sample, tokens=len(encoded["input_ids"]))
    return sample


def _template(run: Run, folder: Path) -> Any:
    from swift.arguments import BaseArguments
    from swift.pipelines import prepare_model_template

    if "templates" in run.parts:
        from swift_grpo_ext.models import register

        register()
    said = run.arguments.said("model_type", "template", "max_pixels")
    arguments = BaseArguments(model=str(folder), load_args=False, use_hf=True, **said)
    _, template = prepare_model_template(arguments, load_model=False)
    template.max_length = None
    return template
