"""Reading what is to be scored: the rows of a dataset, and the completions for them, one JSON value per line.

Completions are texts, or objects with ``completion`` or ``response``, in the rows' order; or the rows carry
their own, as do the tables of a run's ``completions.jsonl``, one row for each completion.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.rewards.contract import Columns, completion_text, last_question

TEXT_KEYS = ("completion", "response")


@dataclass(frozen=True)
class Sample:
    """One completion with its row."""

    row: int  # line of the dataset file, from 1
    columns: Columns
    completion: str


def read_rows(path: Path) -> list[dict[str, object]]:
    """The rows of a JSONL dataset, each a JSON object, or of a run's tables of completions."""
    rows: list[dict[str, object]] = []
    previous = None
    for number, line in enumerate(_lines(path), start=1):
        where = f"{path}:{number}"
        if not isinstance(line, dict):
            raise DatasetRowError("line is no JSON object", where=where)
        if not _is_table(line):
            rows.append(line)
        elif line != previous:  # ms-swift writes the last table again when a run ends
            columns = {name: values for name, values in line.items() if isinstance(values, list)}
            if any(len(line["completion"]) > len(values) for values in columns.values()):
                what = "a table of completions that lacks values of a column"
                raise DatasetRowError(what, where=where, fix="completions.jsonl as a run wrote it")
            for index in range(len(line["completion"])):
                rows.append({name: values[index] for name, values in columns.items()})
        previous = line
    return rows


def samples_of(rows: Sequence[dict[str, object]], completions: Path | None) -> list[Sample]:
    """Every completion with its row; without a file of completions the rows carry them."""
    if completions is None:
        numbered, fix = enumerate(rows, start=1), "or give --completions FILE"
        return [Sample(number, row, _text(row, f"row {number}", fix)) for number, row in numbered]
    lines = list(_lines(completions))
    if _is_table(lines[0]):
        fix = "give it instead of the rows: swift-grpo-ext score completions.jsonl"
        raise DatasetRowError("a run's tables of completions", where=str(completions), fix=fix)
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
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig").rstrip()
    except UnicodeDecodeError as error:
        place = raw.count(b"\n", 0, error.start) + 1
        raise DatasetRowError("not UTF-8", where=f"{path}:{place}", fix="write the file as UTF-8") from None
    if not text:
        raise DatasetRowError("nothing in it", where=str(path), fix="one JSON value per line")
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            fix = "one JSON value per line, no empty lines"
            raise DatasetRowError("line is no JSON", where=f"{path}:{number}", fix=fix) from None


def _is_table(line: object) -> bool:
    """A line of a run's ``completions.jsonl``: a list of completions, not one as a list of messages."""
    listed = line.get("completion") if isinstance(line, Mapping) else None
    return isinstance(listed, list) and not all(isinstance(turn, Mapping) for turn in listed)


def _text(line: object, where: str, fix: str = "") -> str:
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
