"""Reading what is to be scored: the rows of a dataset as a run gets them, and completions for them.

Completions are texts, or objects with ``completion`` or ``response``, one JSON value per line in the rows'
order; or the rows carry their own. The ``completions.jsonl`` of a run is rows with completions, too.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.rewards.contract import Columns, completion_text, last_question
from swift_grpo_ext.rewards.json_text import Json

TEXT_KEYS = ("completion", "response")


@dataclass(frozen=True)
class Sample:
    """One completion with its row."""

    row: int  # of the file, from 1
    columns: Columns
    completion: str


def read_rows(path: Path) -> list[dict[str, Json]]:
    """The rows of a JSONL dataset with the values that a run sees, or those that a run has written.

    Raises:
        DatasetRowError: The file is missing, empty or not UTF-8, a line is not a JSON object, or a run could
            not load it.
    """
    rows = list(_lines(path))
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise DatasetRowError("line is no JSON object", where=f"{path}:{number}")
    if _is_table(rows[0]):
        return list(_of_run(rows, path))
    return (
        rows if "failure" in rows[0] or not any(rows) else _loaded(path, rows)
    )  # a row that failed has been loaded


def _loaded(path: Path, rows: Sequence[dict[str, Json]]) -> list[dict[str, Json]]:
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


def samples_of(rows: Sequence[dict[str, Json]], completions: Path | None) -> list[Sample]:
    """Every completion with its row; without a file of completions the rows carry them.

    Raises:
        DatasetRowError: A completion is missing or not text, there is another number of completions than of
            rows, or a completion answers another question than its row asks.
    """
    if completions is None:
        fix = "or give --completions FILE"
        return [Sample(n, row, _text(row, f"row {n}", fix)) for n, row in enumerate(rows, start=1)]
    lines = list(_lines(completions))
    if _is_table(lines[0]):
        fix = f"score it without a dataset: swift-grpo-ext score {completions} --reward ..."
        raise DatasetRowError("completions of a run, which hold their rows", where=str(completions), fix=fix)
    if len(lines) != len(rows):
        fix = "one line per row of the dataset, in its order"
        count = f"{len(lines)} completions for {len(rows)} rows"
        raise DatasetRowError(count, where=str(completions), fix=fix)
    samples = []
    for number, (row, line) in enumerate(zip(rows, lines, strict=True), start=1):
        where = f"{completions}:{number}"
        theirs = last_question(line.get("messages")) if isinstance(line, dict) else ""
        ours = last_question(row.get("messages"))
        if theirs and ours and _bare(theirs) != _bare(ours):
            mismatch = f"completion to {theirs[:60]!r} for a row that asks {ours[:60]!r}"
            raise DatasetRowError(mismatch, where=where, fix="infer without shuffling, on the same file")
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
            fault = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "line is no JSON"
            raise DatasetRowError(fault, where=f"{path}:{number}", fix=fix) from None


def _is_table(line: Json) -> bool:
    """A line of a run's ``completions.jsonl``: a list of completions, not one as a list of messages."""
    listed = line.get("completion") if isinstance(line, Mapping) else None
    return isinstance(listed, list) and not all(isinstance(turn, Mapping) for turn in listed)


def _of_run(tables: Sequence[Mapping[str, Any]], path: Path) -> Iterator[dict[str, Json]]:
    """The rows of tables of completions. ms-swift writes the last table again when a run ends.

    Raises:
        DatasetRowError: A line is not such a table.
    """
    for place, table in enumerate(tables):
        columns = {name: values for name, values in table.items() if isinstance(values, list)}
        if "gold" in columns:  # ms-swift's column lacks the batches in which a row had none
            columns.pop("solution", None)
        if not _is_table(table) or any(len(table["completion"]) > len(values) for values in columns.values()):
            fault = "line is no table of completions with a value of every column for each"
            fix = "completions.jsonl as the run wrote it"
            raise DatasetRowError(fault, where=f"{path}:{place + 1}", fix=fix)
        for index in range(len(table["completion"]) if table not in tables[max(0, place - 1) : place] else 0):
            row = {name: values[index] for name, values in columns.items()}
            question = row.pop("question", None) or row.get("prompt")
            gold = {"solution": row["gold"] or None} if "gold" in row else {}
            yield {"messages": [{"role": "user", "content": question}], **row, **gold}


def _text(line: Json, where: str, fix: str = "") -> str:
    text = line
    if isinstance(line, Mapping):
        text = next((line[key] for key in TEXT_KEYS if line.get(key) is not None), None)
        text = completion_text(text) if isinstance(text, list) else text
    if not isinstance(text, str):
        forms = f"a text, or an object with {' or '.join(TEXT_KEYS)}"
        raise DatasetRowError("no completion", where=where, fix=f"{forms} {fix}".rstrip())
    return text


def _bare(text: str) -> str:
    """A text without its image tags and outer white space."""
    return " ".join(text.replace("<image>", " ").split())
