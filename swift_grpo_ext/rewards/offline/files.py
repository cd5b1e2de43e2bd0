"""Reads what is to be scored: the rows of a dataset as a run gets them, and completions for them.

Completions are texts, or objects with ``completion`` or ``response``, one JSON value per line in the rows'
order; or the rows carry their own. The ``completions.jsonl`` of a run is rows with completions, too.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.rewards.contract import last_question
from swift_grpo_ext.rewards.gold.frames import SIZES_COLUMN
from swift_grpo_ext.rewards.json_text import Json

TEXT_KEYS = ("completion", "response")
# A gold is converted to the answers' frame and back: any size will do in which every gold lies.
ANY_SIZE = [1_000_000, 1_000_000]
Rows: TypeAlias = Sequence[dict[str, Any]]


def read_rows(path: Path) -> Rows:
    """The rows of a JSONL dataset with the values that a run sees, or those that a run has written.

    Raises:
        DatasetRowError: The file is missing, empty or not UTF-8, a line is not a JSON object, or a run could
            not load it.
    """
    rows = _lines(path)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise DatasetRowError("line is not a JSON object", where=f"{path}:{number}")
    if all(map(_is_table, rows)):
        return list(_of_run(rows))
    return _loaded(path, rows) if any(rows) else rows


def _loaded(path: Path, rows: Rows) -> Rows:
    """The rows by the reader of ms-swift, ``datasets``: 3 beside 2.5 is 3.0, a date may be a timestamp.

    Raises:
        DatasetRowError: It cannot read them.
    """
    import datasets

    datasets.disable_progress_bars()
    try:
        with tempfile.TemporaryDirectory() as cache:
            loaded = datasets.Dataset.from_json(str(path), cache_dir=cache, keep_in_memory=True)
    except (datasets.exceptions.DatasetGenerationError, ValueError, TypeError) as error:
        cause = str(error.__cause__ or error).splitlines()[0]
        fix = "give every row's columns values of one type, or JSON as text"
        raise DatasetRowError(f"a run cannot load it: {cause:.200}", where=str(path), fix=fix) from None
    texts = [{key: row[key] for key in TEXT_KEYS if key in row} for row in rows]
    return [{**row, **text} for row, text in zip(loaded, texts, strict=True)]


def completions_of(rows: Rows, path: Path | None) -> list[str]:
    """The completion of every row; without a file of completions the rows carry them.

    Raises:
        DatasetRowError: A completion is missing or not text, there is another number of completions than of
            rows, or a completion answers another question than its row asks.
    """
    lines: Sequence[Any] = rows if path is None else _lines(path)
    if len(lines) != len(rows):
        fix = "one line per row of the dataset, in its order; a run's completions.jsonl is scored by itself"
        count = f"{len(lines)} completions for {len(rows)} rows"
        raise DatasetRowError(count, where=str(path), fix=fix)
    completions = []
    for number, (row, line) in enumerate(zip(rows, lines, strict=True), start=1):
        where = f"{path}:{number}" if path else f"row {number}"
        theirs, ours = _question(line), _question(row)
        if theirs and ours and theirs != ours:
            mismatch = f"completion to {theirs[:60]!r} for a row that asks {ours[:60]!r}"
            raise DatasetRowError(mismatch, where=where, fix="infer without shuffling, on the same file")
        fields = line if isinstance(line, dict) else {TEXT_KEYS[0]: line}
        text = next((fields[key] for key in TEXT_KEYS if fields.get(key) is not None), None)
        if not isinstance(text, str):
            fix = f"a text, or an object with {' or '.join(TEXT_KEYS)}, or --completions FILE"
            raise DatasetRowError("no completion", where=where, fix=fix)
        completions.append(text)
    return completions


def _question(line: Json) -> str:
    """The last question of a line, without image tags, its white space made single spaces."""
    asked = last_question(line.get("messages")) if isinstance(line, Mapping) else ""
    return " ".join(asked.replace("<image>", " ").split())


def _lines(path: Path) -> list[Any]:
    if not path.is_file():
        raise DatasetRowError("no such file", where=str(path), fix="give the path of a JSONL file")
    values = []
    for number, line in enumerate(path.read_bytes().rstrip().split(b"\n"), start=1):
        try:
            values.append(json.loads(line.decode("utf-8-sig")))
        except (ValueError, RecursionError) as error:
            fault = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "line is not JSON"
            fault = fault if line or number > 1 else "nothing in it"
            fix = "one JSON value per line in UTF-8, no empty lines"
            raise DatasetRowError(fault, where=f"{path}:{number}", fix=fix) from None
    return values


def _is_table(line: Json) -> bool:
    """True for a line of a run's ``completions.jsonl``: a list of completions, not one of messages."""
    listed = line.get("completion") if isinstance(line, Mapping) else None
    return isinstance(listed, list) and not all(isinstance(turn, Mapping) for turn in listed)


def _of_run(tables: Rows) -> Iterator[dict[str, Any]]:
    """The rows of tables of completions. ms-swift writes the last table again when a run ends."""
    for table, _ in groupby(tables):
        # A column without a value for each completion says nothing of any.
        columns = {name: values for name, values in table.items() if _is_column(values, table)}
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            question = row.pop("question", None) or row.get("prompt")
            yield {"messages": [{"role": "user", "content": question}], **row}


def _is_column(values: Json, table: Mapping[str, Any]) -> bool:
    return isinstance(values, list) and len(values) == len(table["completion"])


def with_image_sizes(rows: Rows, folder: Path, gold: bool) -> Rows:
    """The rows, with the original sizes of local images (from here, else `folder`) where a row has none."""
    sized = []
    for row in rows:
        images = None if row.get(SIZES_COLUMN) else row.get("images")
        if isinstance(images, list):
            sizes = [{"original": _size(image, folder)} for image in images]
            if gold:
                sizes = [{"original": size["original"] or ANY_SIZE, "resized": ANY_SIZE} for size in sizes]
            row = {**row, SIZES_COLUMN: sizes}
        sized.append(row)
    return sized


def _size(image: Json, folder: Path) -> list[int] | None:
    """Width and height of a local image file; None if that is not known."""
    from PIL import Image

    name = image.get("path") if isinstance(image, dict) else image
    try:
        path = Path(str(name))
        with Image.open(path if path.is_file() else folder / path) as opened:
            return list(opened.size)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
