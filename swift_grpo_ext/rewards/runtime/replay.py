"""Failed completions, written so that ``swift-grpo-ext score FILE`` runs them again."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from swift_grpo_ext.rewards.contract import Columns
from swift_grpo_ext.rewards.runtime.ledger import Failure

MAX_RECORDS = 10_000
MAX_TEXT = 100_000

_lock = threading.Lock()
_written: dict[Path, int] = {}


def replay_file(output_dir: str | None) -> Path | None:
    """Where this rank writes its failures; None outside of a run."""
    if not output_dir:
        return None
    return Path(output_dir) / f"reward_failures.rank{os.environ.get('RANK', '0')}.jsonl"


def record(path: Path | None, failure: Failure, completion: str, columns: Columns) -> None:
    """Append one failed completion with its row; images stay as paths, bytes are left out.

    At most `MAX_RECORDS` are written per file and process.
    """
    if path is None or _written.get(path, 0) >= MAX_RECORDS:
        return
    row = {name: _short(value) for name, value in columns.items() if value is not None}
    line = {
        **row,
        "completion": str(completion)[:MAX_TEXT],
        "reward": failure.reward,
        "failure": {"kind": failure.kind, "what": failure.what, "details": failure.details},
    }
    with _lock:
        _written[path] = _written.get(path, 0) + 1
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(json.dumps(line, ensure_ascii=False, default=_in_words) + "\n")


def _short(value: object) -> object:
    """The value without texts that nobody reads, such as images in base64."""
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"<text of {len(value)} characters>"
    if isinstance(value, list):
        return [_short(item) for item in value]
    return {key: _short(item) for key, item in value.items()} if isinstance(value, dict) else value


def _in_words(value: object) -> str:
    return f"<{type(value).__name__}>"
