"""What happened to the completions of each reward: counted, failed ones as a file, said in a line once."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from swift_grpo_ext.rewards.contract import Columns, last_question
from swift_grpo_ext.rewards.json_text import Json

FailureKind: TypeAlias = Literal["error", "timeout", "refused"]
MAX_LATENCIES = 1024
MAX_RECORDS = 10_000  # failed completions that are written per file and process
MAX_TEXT = 100_000
_lock = threading.Lock()
_written: dict[Path, int] = {}
_printed: set[str] = set()


def is_new(line: str) -> bool:
    """Whether this process, of the first rank, has not told this yet; from now on it has."""
    new = os.environ.get("RANK", "0") == "0" and line not in _printed
    _printed.add(line)
    return new


def say(line: str) -> None:
    """Print a line on stderr, unless this process has said it or is not the first rank."""
    if is_new(line):
        print(f"swift-grpo-ext: {line}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Failure:
    """A reward that did not come back with a score."""

    reward: str  # its name
    kind: FailureKind  # it raised, was killed, or broke its contract, which ends the run at once
    what: str
    row: str  # which row it was, in words
    details: str = ""  # the traceback, if there is one
    replay: str = ""  # the file that it was written to

    def __str__(self) -> str:
        return f"reward {self.reward!r}: {self.what} [{self.row}]"


def announce(failure: Failure) -> None:
    """Print the first failure of each reward when it happens; further ones are counted.

    Nothing of a broken contract, which ends the run and is its last line.
    """
    if failure.kind != "refused" and is_new(f"first failure of {failure.reward}"):
        where = f"; {failure.replay} replays it" if failure.replay else ""
        say(" ".join(f"{failure}{where}; further failures are counted".split()))


class Counts(NamedTuple):
    """Of a batch on all ranks, the completions that a reward applies to, and what it made of them."""

    applies: int
    scored: int
    unread: int  # not in the form that it reads


@dataclass
class Report:
    """Counts of one reward, on one rank or added over ranks."""

    completions: int = 0  # how many it was asked to score
    scored: int = 0  # how many of them got a score
    unread: int = 0  # how many were not in the form that it reads
    failures: int = 0  # how many failed through the reward's fault
    timeouts: int = 0  # how many ran into their limit, whoever's fault that is
    unscored: Counter[str] = field(default_factory=Counter)  # rows that cannot be scored, by reason
    seconds: list[float] = field(default_factory=list)  # times of single completions, at most `MAX_LATENCIES`
    counts: Counter[str] = field(default_factory=Counter)  # what else it counts, as a judge's tokens
    first: Failure | None = None  # the first failure, and any that was refused
    example: str = ""  # the reason of the first that was not read

    def add(self, other: Report) -> None:
        """Take in other counts, of another rank or of more completions."""
        for name in ("completions", "scored", "unread", "failures", "timeouts", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unscored.update(other.unscored)
        self.counts.update(other.counts)
        self.example = self.example or other.example
        if self.first is None or (other.first and other.first.kind == "refused"):
            self.first = other.first or self.first

    def percentile(self, share: float) -> float:
        """Time in seconds that this share of the completions took at most; 0 without any."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Ledger:
    """The report of one reward in this process, written from any thread."""

    def __init__(self) -> None:
        self._report = Report()
        self._lock = threading.Lock()

    def add(self, counts: Report) -> None:
        """Count what happened to some completions."""
        with self._lock:
            self._report.add(counts)
            del self._report.seconds[MAX_LATENCIES:]

    def drain(self) -> Report:
        """The report since the last call."""
        with self._lock:
            report = self._report
            self._report = Report()
        return report


_ledgers: dict[str, Ledger] = {}


def ledger(name: str) -> Ledger:
    """The ledger of the reward of this name, one per process."""
    return _ledgers.setdefault(name, Ledger())


def drain_all() -> dict[str, Report]:
    """The reports of all rewards since the last call."""
    return {name: book.drain() for name, book in list(_ledgers.items())}


def row_in_words(index: int, columns: Columns) -> str:
    """Which row this is: its place in the batch, and what its columns tell."""
    rank = os.environ.get("RANK")
    place = f"completion {index} of the batch" + (f" of rank {rank}" if rank else "")
    return ", ".join([place, *columns_in_words(columns)])


def columns_in_words(columns: Columns) -> list[str]:
    """What tells a row from others: its id, its first image, the start of its question."""
    named = [key for key in ("id", "row_id", "prompt_id") if columns.get(key)][:1]
    parts = [f"{key} {columns[key]!r:.60}" for key in named]
    images = columns.get("images")
    if isinstance(images, list) and images:
        path = images[0].get("path") if isinstance(images[0], dict) else images[0]
        has_path = isinstance(path, str) and len(path) < 4096
        parts.append(f"image {path!r:.80}" if has_path else "image without a path")
    if question := last_question(columns.get("messages")):
        parts.append(f"question {question[:80]!r}")
    return parts


def replay_file(output_dir: str | None) -> Path | None:
    """Where this rank writes its failures; None outside of a run."""
    if not output_dir:
        return None
    return Path(output_dir) / f"reward_failures.rank{os.environ.get('RANK', '0')}.jsonl"


def record_failure(path: Path | None, failure: Failure, completion: str, columns: Columns) -> None:
    """Append one failed completion with its row; images stay as paths, bytes are left out."""
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
            text = json.dumps(line, ensure_ascii=False, default=lambda value: f"<{type(value).__name__}>")
            file.write(text + "\n")


def _short(value: Json) -> Json:
    """The value without texts that nobody reads, such as images in base64."""
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"<text of {len(value)} characters>"
    if isinstance(value, list):
        return [_short(item) for item in value]
    return {key: _short(item) for key, item in value.items()} if isinstance(value, dict) else value
