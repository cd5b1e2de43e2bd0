"""Reading what is to be scored: the rows of a dataset, and the completions for them, one JSON value per line.

Completions are texts, or objects with ``completion`` or ``response``, in the rows' order; or a run's
``completions.jsonl``, whose shuffled completions find their row by question, images and solution; or the rows
carry their own.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.rewards.contract import Columns, completion_text, last_question
from swift_grpo_ext.rewards.reading.json_text import Json

TEXT_KEYS = ("completion", "response")


@dataclass(frozen=True)
class Sample:
    """One completion with its row."""

    row: int  # line of the dataset file, from 1
    columns: Columns
    completion: str


def read_rows(path: Path) -> list[dict[str, Json]]:
    """The rows of a JSONL dataset, each a JSON object.

    Raises:
        DatasetRowError: The file is missing, empty or not UTF-8, or a line is not a JSON object.
    """
    rows = list(_lines(path))
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise DatasetRowError("line is no JSON object", where=f"{path}:{number}")
    return rows


def samples_of(rows: Sequence[dict[str, Json]], completions: Path | None) -> list[Sample]:
    """Every completion with its row; without a file of completions the rows carry them.

    Raises:
        DatasetRowError: A completion is missing or not text, there is another number of completions than of
            rows, or a completion answers another question than its row asks.
    """
    if completions is None:
        numbered = enumerate(rows, start=1)
        fix = "or give --completions FILE"
        return [Sample(number, row, _text(row, f"row {number}", fix)) for number, row in numbered]
    lines = list(_lines(completions))
    if _is_table(lines[0]):
        return list(_matched(rows, lines, completions))
    if len(lines) != len(rows):
        fix = "one line per row of the dataset, in its order"
        what = f"{len(lines)} completions for {len(rows)} rows"
        raise DatasetRowError(what, where=str(completions), fix=fix)
    samples = []
    for number, (row, line) in enumerate(zip(rows, lines, strict=True), start=1):
        where = f"{completions}:{number}"
        theirs = last_question(line.get("messages")) if isinstance(line, dict) else ""
        ours = last_question(row.get("messages"))
        if theirs and ours and _bare(theirs) != _bare(ours):
            what = f"completion to {theirs[:60]!r} for a row that asks {ours[:60]!r}"
            raise DatasetRowError(what, where=where, fix="infer without shuffling, on the same file")
        samples.append(Sample(number, row, _text(line, where)))
    return samples


def _lines(path: Path) -> Iterator[Any]:
    if not path.is_file():
        raise DatasetRowError("no such file", where=str(path), fix="give the path of a JSONL file")
    text = path.read_bytes().rstrip()
    fix = "one JSON value per line in UTF-8, no empty lines"
    if not text:
        raise DatasetRowError("nothing in it", where=str(path), fix=fix)
    for number, line in enumerate(text.split(b"\n"), start=1):
        try:
            yield json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "line is no JSON"
            raise DatasetRowError(what, where=f"{path}:{number}", fix=fix) from None


def _is_table(line: Json) -> bool:
    """A line of a run's ``completions.jsonl``: a list of completions, not one as a list of messages."""
    listed = line.get("completion") if isinstance(line, Mapping) else None
    return isinstance(listed, list) and not all(isinstance(turn, Mapping) for turn in listed)


def _text(line: Json, where: str, fix: str = "") -> str:
    text = line
    if isinstance(line, Mapping):
        text = next((line[key] for key in TEXT_KEYS if line.get(key) is not None), None)
        text = completion_text(text) if isinstance(text, list) else text
    if not isinstance(text, str):
        forms = f"a text, or an object with {' or '.join(TEXT_KEYS)}"
        raise DatasetRowError("no completion", where=where, fix=f"{forms} {fix}".rstrip())
    return text


def _matched(rows: Sequence[dict[str, Json]], tables: Sequence[Any], path: Path) -> Iterator[Sample]:
    """The completions of a run, each with its row. ms-swift writes the last table again when a run ends.

    Raises:
        DatasetRowError: A line is not a table of completions, or the row of a completion is not certain.
    """
    numbers = defaultdict(list)
    for number, row in enumerate(rows, start=1):
        numbers[_names(row)].append(number)
    previous = None
    for place, table in enumerate(tables, start=1):
        if table == previous:
            continue
        previous = table
        listed = table.items() if _is_table(table) else ()
        columns = {name: values for name, values in listed if isinstance(values, list)}
        if not columns or any(len(columns["completion"]) > len(column) for column in columns.values()):
            what = "line is no table of completions with a value of every column for each"
            fix = "completions.jsonl as the run wrote it"
            raise DatasetRowError(what, where=f"{path}:{place}", fix=fix)
        for index, completion in enumerate(columns["completion"]):
            logged = {name: values[index] for name, values in columns.items()}
            where = f"{path}:{place}, completion {index}"
            number = _row_of(logged, rows, numbers[_names(logged)], where)
            yield Sample(number, rows[number - 1], _text(completion, where))


def _row_of(
    logged: Mapping[str, object], rows: Sequence[dict[str, Json]], candidates: Sequence[int], where: str
) -> int:
    """The number of the row that a completion was logged for, the first of equal ones.

    Raises:
        DatasetRowError: No row fits, or several that differ do.
    """
    prompt = _bare(str(logged.get("prompt", "")))
    fitting = []
    for number in candidates:
        row = rows[number - 1]
        same = "solution" not in logged or logged["solution"] == row.get("solution")
        if same and _bare(last_question(row.get("messages"))) in prompt:
            fitting.append(number)
    if not fitting:
        raise DatasetRowError("no row has its question, images and solution", where=where)
    if any(rows[number - 1] != rows[fitting[0] - 1] for number in fitting[1:]):
        rows_named = f"rows {', '.join(map(str, fitting[:5]))} differ elsewhere"
        fix = f"{rows_named}; score them as a file of completions in the rows' order"
        raise DatasetRowError("several rows have its question, images and solution", where=where, fix=fix)
    return fitting[0]


def _names(columns: Columns) -> tuple[str, ...]:
    """File names of the row's images: a run logs absolute paths, a dataset may hold relative ones."""
    images = columns.get("images") or []
    paths = [image.get("path") if isinstance(image, dict) else image for image in images]
    return tuple(Path(path).name if isinstance(path, str) else "" for path in paths)


def _bare(text: str) -> str:
    """A text without its image tags and outer white space."""
    return " ".join(text.replace("<image>", " ").split())
