"""The first rows of each local dataset: as they stand, as ms-swift loads them, and through the template."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from swift_grpo_ext.doctor.check import media
from swift_grpo_ext.doctor.check.environment import environment
from swift_grpo_ext.doctor.check.files import Row, drawn, rows_of
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import About, Finding, Severity

_FILES = (".jsonl", ".json", ".csv", ".parquet", ".txt", ".arrow")


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
    for flag in ("dataset", "val_dataset"):
        names = run.arguments.get(flag) or []
        for name in names if limit > 0 else ():
            own: list[Sample] = []
            found += _of_dataset(run, f"--{flag}", name, limit, own)
            samples += own if flag == "dataset" else []
    return samples, found


def _of_dataset(run: Run, flag: str, name: str, limit: int, samples: list[Sample]) -> Iterator[Finding]:
    path, number = run.dataset(name)
    if number == 0:
        yield Finding("dataset-empty", Severity.ERROR, "#0 draws no row", f"{flag} {name}", "e.g. #1000")
    if path is not None:
        lines, faults = _as_they_stand(path.resolve(), limit)
        yield from faults or _as_the_host_reads(run, path.resolve(), limit, lines, samples)
    elif not drawn(name)[0].endswith(_FILES) and not name.startswith(("/", "./", "../", "~")):
        what, fix = "not a file here: its rows were not checked", "check again with a local copy"
        yield Finding(
            "dataset-elsewhere",
            Severity.NOTE,
            what,
            f"{flag} {name}",
            fix,
            about=About.ROW,
            not_checked="rows",
        )


def _as_they_stand(path: Path, limit: int) -> tuple[list[int], list[Finding]]:
    """Line numbers of the first rows of a JSON file, and those that are none."""
    if not any(path.iterdir()) if path.is_dir() else path.stat().st_size == 0:
        what = f"the {'folder' if path.is_dir() else 'file'} is empty"
        return [], [Finding("dataset-empty", Severity.ERROR, what, path.name, "check the path")]
    if path.is_dir() or path.suffix not in (".jsonl", ".json"):
        return [], []
    rows, what = list(islice(rows_of(path), limit)), "the row is no JSON object"
    places = [f"{path.name}:{number}" for number, row in rows if row is None]
    faults = [Finding("row-unreadable", Severity.ERROR, what, place, "fix the line") for place in places]
    return [number for number, _ in rows], faults


def _as_the_host_reads(
    run: Run, path: Path, limit: int, lines: list[int], samples: list[Sample]
) -> Iterator[Finding]:
    """Load the first rows with ms-swift's loader, strictly; if it refuses, as a run does: without the row."""
    refusal, loaded = "", None
    for strict in (True, False):
        try:
            loaded = list(islice(_stream(run, path, strict=strict), limit))
            break
        except REFUSALS as error:
            refusal = refusal or f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:300]
    whole = not refusal and loaded is not None and len(loaded) == len(lines)
    for number, columns in enumerate(loaded or ()):
        where = f"{path.name}:{lines[number]}" if whole else f"{path.name} row {number + 1}"
        samples.append(Sample(where, {k: v for k, v in columns.items() if v is not None}, path.parent))
    if loaded is None:
        yield Finding("dataset-unreadable", Severity.ERROR, refusal, path.name, "fix the file")
    elif refusal:
        severity, fix = (
            Severity.WARNING if loaded else Severity.ERROR,
            "fix the rows, --strict true names them in a run",
        )
        yield Finding("row-dropped", severity, f"ms-swift drops rows of it: {refusal}", path.name, fix)
    elif not loaded:
        yield Finding("dataset-empty", Severity.ERROR, "it has no rows", path.name, "check the path")
    yield from _media_and_template(run, samples)


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
            what, fix = "no message of a user", "add messages or query"
            yield Finding("row-no-prompt", Severity.ERROR, what, sample.where, fix)
            continue
        faults = list(media.findings(run, sample.where, sample.columns, sample.folder))
        yield from faults
        if not any(fault.severity is Severity.ERROR for fault in faults):
            sound.append((sample.where, {**sample.columns, "messages": sample.prompt}))
    yield from _encoded(run, sound)


@contextmanager
def _alone() -> Iterator[None]:
    """No log of the host and its packages, and no waiting for other ranks, which load nothing now."""
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


def _encoded(run: Run, rows: list[tuple[str, dict[str, object]]]) -> Iterator[Finding]:
    """What the template says to some rows; one note if the model's files are not here."""
    folder = run.find(str(run.arguments.model or "-"))
    if not rows:
        return
    if folder is None or not (folder / "tokenizer_config.json").is_file():
        what, fix = "no tokenizer here: rows were not sent through the template", "check where the model is"
        where = f"--model {run.arguments.model}"
        yield Finding("rows-not-encoded", Severity.NOTE, what, where, fix, not_checked="lengths of prompts")
        return
    own = {name: run.environ[name] for name in _PIXEL_VARIABLES.split() if name in run.environ}
    with environment({**os.environ, **own}):
        try:
            template = _template(run, folder)
        except REFUSALS as error:
            what = f"ms-swift finds no template: {type(error).__name__}: {error}".splitlines()[0][:400]
            fix = "--model_type and --template"
            yield Finding("no-template", Severity.ERROR, what, f"--model {folder}", fix)
            return
        for where, row in rows:
            yield from _row(run, template, where, row)


def _row(run: Run, template: Any, where: str, row: dict[str, object]) -> Iterator[Finding]:
    try:
        encoded = template.encode(dict(row))
    except REFUSALS as error:
        what = f"the template refuses it: {type(error).__name__}: {error}"
        yield Finding("row-refused", Severity.ERROR, what[:400], where, "fix or drop the row")
        return
    tokens = len(encoded["input_ids"])
    limit = run.arguments.max_length
    if limit and tokens > limit:
        what = f"{tokens} prompt tokens, max_length is {limit}"
        yield Finding("row-too-long", Severity.WARNING, what, where, f"--max_length {_rounded(tokens)}")
    length = run.arguments.vllm_max_model_len if run.arguments.use_vllm else None
    needed = tokens + run.arguments.max_completion_length
    if length and needed > length:
        what = f"{tokens} + {run.arguments.max_completion_length} tokens, vllm_max_model_len is {length}"
        fix = f"--vllm_max_model_len {_rounded(needed)}"
        yield Finding("row-over-model-len", Severity.ERROR, what, where, fix)
    yield from _placeholders(template, encoded, where)


def _rounded(tokens: int) -> int:
    return -(-tokens // 256) * 256


def _placeholders(template: Any, encoded: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """As many placeholder tokens as the vision tower will give features (C5 of docs/findings.md)."""
    grid, token = encoded.get("image_grid_thw"), getattr(template, "image_token_id", None)
    if grid is None or token is None:
        return
    merge = template.processor.image_processor.merge_size
    features = int(grid.prod(-1).sum()) // merge**2
    placeholders = list(encoded["input_ids"]).count(token)
    if features != placeholders:
        what = f"{placeholders} image tokens for {features} image features"
        yield Finding("row-placeholders", Severity.ERROR, what, where, "check the template", reports=("C5",))


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
