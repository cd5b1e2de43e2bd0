"""F30: a line of a dataset that is not JSON ends a run with 90 lines of traceback that do not say which."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from swift_grpo_ext.compat.patch import patch
from swift_grpo_ext.errors import DatasetRowError

if TYPE_CHECKING:
    from datasets import Dataset
    from swift.dataset import DatasetMeta
    from swift.dataset.loader import DatasetLoader


@patch(
    "F30",
    "swift.dataset.loader:DatasetLoader._load_dataset_path",
    fingerprint="self, dataset_path, dataset_meta",
    probe=lambda: True,  # who fixes it would do so in datasets, whose reader knows the line
    remove_when="datasets names file and line of what its JSON reader cannot read",
)
def fix(
    load: Callable[..., Dataset], loader: DatasetLoader, dataset_path: str, dataset_meta: DatasetMeta
) -> Dataset:
    """Load a file; if that fails because of a broken line, name that line in a one-line error.

    Raises:
        SystemExit: With status 1.
        DatasetGenerationError: The file has no broken line; the original error is re-raised.
    """
    from datasets.exceptions import DatasetGenerationError

    try:
        return load(loader, dataset_path, dataset_meta)
    except DatasetGenerationError as error:
        broken = broken_line(Path(dataset_path))
        if not broken:
            raise
        print(broken, file=sys.stderr)
        raise SystemExit(1) from error


def broken_line(path: Path, most: int | None = None) -> DatasetRowError | None:
    """Error for the first line of a JSONL file, among the first ``most``, that is not an object, or None."""
    if path.suffix != ".jsonl" or not path.is_file():
        return None
    with path.open("rb") as file:
        for number, line in enumerate(islice(file, most), 1):
            if what := _fault(line):
                return DatasetRowError(what, where=f"{path}:{number}", fix="fix the line")
    return None


def _fault(line: bytes) -> str:
    """The fault of a line as a sentence; empty for a sound line."""
    try:
        row = json.loads(line) if line.strip() else {}
    except RecursionError:
        return "the line is nested too deeply"
    except ValueError as error:  # also of bytes that are not UTF-8
        return f"the line is not JSON: {error}"
    return "" if isinstance(row, dict) else f"the line is not a JSON object but {type(row).__name__}"
