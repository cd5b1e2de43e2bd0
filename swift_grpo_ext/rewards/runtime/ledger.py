"""What happened to the completions of each reward since somebody asked: scores, reasons, failures, times."""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from swift_grpo_ext.rewards.contract import Columns
from swift_grpo_ext.rewards.conversation import last_question

FailureKind: TypeAlias = Literal["error", "timeout", "refused"]
MAX_LATENCIES = 1024


@dataclass(frozen=True)
class Failure:
    """A reward that did not come back with a score."""

    reward: str  # its name
    kind: FailureKind  # it raised, was killed, or broke its contract, which ends the run at once
    what: str
    row: str  # which row it was, in words
    details: str = ""  # the traceback, if there is one

    def __str__(self) -> str:
        return f"reward {self.reward!r}: {self.what} [{self.row}]"


@dataclass
class Report:
    """Counts of one reward, on one rank or added over ranks."""

    completions: int = 0  # how many it was asked to score
    failures: int = 0  # how many of them failed through the reward's fault
    timeouts: int = 0  # how many ran into their limit, whoever's fault that is
    unscored: Counter[str] = field(default_factory=Counter)  # rows that cannot be scored, by reason
    seconds: list[float] = field(default_factory=list)  # times of single completions, at most `MAX_LATENCIES`
    counts: Counter[str] = field(default_factory=Counter)  # what else it counts, as a judge's tokens
    first: Failure | None = None  # the first failure, and any that was refused

    def add(self, other: Report) -> None:
        """Take in another rank's counts."""
        self.completions += other.completions
        self.failures += other.failures
        self.timeouts += other.timeouts
        self.unscored.update(other.unscored)
        self.seconds += other.seconds
        self.counts.update(other.counts)
        if self.first is None or (other.first and other.first.kind == "refused"):
            self.first = other.first or self.first

    def percentile(self, share: float) -> float:
        """Time in seconds that this share of the completions took at most; 0 without any."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Ledger:
    """The report of one reward in this process, written from any thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._report = Report()
        self._lock = threading.Lock()
        self._reasons_told: set[str] = set()

    def scored(self, completions: int, seconds: list[float]) -> None:
        """Count completions that the reward dealt with, and their times."""
        with self._lock:
            self._report.completions += completions
            room = MAX_LATENCIES - len(self._report.seconds)
            self._report.seconds += seconds[:room]

    def unscored(self, reason: str) -> bool:
        """Count a row that cannot be scored; True the first time that this process meets the reason."""
        kind = reason.split("'")[0][:80]
        with self._lock:
            self._report.unscored[kind] += 1
            new = kind not in self._reasons_told
            self._reasons_told.add(kind)
        return new

    def timed_out(self) -> None:
        """Count a completion that ran into its limit."""
        with self._lock:
            self._report.timeouts += 1

    def count(self, what: str, amount: int = 1) -> None:
        """Count something that is particular to the reward."""
        with self._lock:
            self._report.counts[what] += amount

    def failed(self, failure: Failure, completions: int = 1) -> None:
        """Count completions that have no score through the reward's fault."""
        with self._lock:
            self._report.failures += completions
            if self._report.first is None or failure.kind == "refused":
                self._report.first = failure

    def drain(self) -> Report:
        """The report since the last call."""
        with self._lock:
            report, self._report = self._report, Report()
        return report


_ledgers: dict[str, Ledger] = {}


def ledger(name: str) -> Ledger:
    """The ledger of the reward of this name, one per process."""
    return _ledgers.setdefault(name, Ledger(name))


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
    parts = []
    for key in ("id", "row_id", "prompt_id"):
        if columns.get(key):
            parts.append(f"{key} {columns[key]!r:.60}")
            break
    images = columns.get("images")
    if isinstance(images, list) and images:
        parts.append(f"image {_image_in_words(images[0])}")
    question = last_question(columns.get("messages"))
    if question:
        parts.append(f"question {question[:80]!r}")
    return parts


def _image_in_words(image: object) -> str:
    path = image.get("path") if isinstance(image, dict) else image
    return f"{path!r:.80}" if isinstance(path, str) and len(path) < 4096 else "without a path"
