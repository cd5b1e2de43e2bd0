"""Counts the outcomes of each reward's completions, and prints a line about each kind of failure once."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass, field

from swift_grpo_ext.rewards.contract import Columns, last_question

_SUMMED = ("completions", "scored", "unread", "failures", "timeouts", "unscored")
_printed: set[str] = set()


def say(line: str, about: str = "") -> None:
    """Print a line on stderr, unless this process has said it, or one about the same, or is not rank 0."""
    subjects = {line, about or line}
    if os.environ.get("RANK", "0") == "0" and _printed.isdisjoint(subjects):
        print(f"swift-grpo-ext: {line}", file=sys.stderr, flush=True)
    _printed.update(subjects)


@dataclass(frozen=True)
class Failure:
    """A reward that did not come back with a score."""

    reward: str  # its name
    kind: str  # error, timeout, or refused: it broke its contract, which ends the run at once
    what: str
    row: str  # which row it was, in words
    details: str = ""  # the traceback, if there is one

    def __str__(self) -> str:
        return f"reward {self.reward!r}: {self.what} [{self.row}]"


def announce(failure: Failure) -> None:
    """Print the first failure of each reward when it happens; further ones are counted.

    A broken contract is not printed here: it ends the run and is its last line.
    """
    if failure.kind != "refused":
        line = " ".join(f"{failure}; further failures are counted".split())
        say(line, about=f"first failure of {failure.reward}")


@dataclass
class Report:
    """Counts of one reward, on one rank or added over ranks."""

    completions: int = 0  # how many it was asked to score
    scored: int = 0  # how many of them got a score
    unread: int = 0  # how many were not in the form that it reads
    failures: int = 0  # how many failed through the reward's fault
    timeouts: int = 0  # how many ran into their limit, whoever's fault that is
    unscored: Counter[str] = field(default_factory=Counter)  # rows that cannot be scored, by reason
    first: Failure | None = None  # the first failure, and any that was refused
    example: str = ""  # the reason of the first completion that was not read

    def fail(self, failure: Failure | None, completions: int = 0) -> None:
        """Count completions that failed; the first failure is kept, unless a broken contract replaces it."""
        self.failures += completions
        if self.first is None or (failure and failure.kind == "refused"):
            self.first = failure or self.first

    def add(self, other: Report) -> None:
        """Take in the counts of another rank."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.example = self.example or other.example
        self.fail(other.first)


_reports: dict[str, Report] = {}  # of this process, by reward


def report_of(reward: str) -> Report:
    """The counts of a reward in this process."""
    return _reports.setdefault(reward, Report())


def drain(reward: str) -> Report:
    """The counts of a reward since the last call, then reset."""
    report = report_of(reward)
    _reports[reward] = Report()
    return report


def drain_all() -> dict[str, Report]:
    """The same of every reward that this process has asked."""
    return {name: drain(name) for name in list(_reports)}


def row_in_words(index: int, columns: Columns) -> str:
    """A row in words: its place in the batch, its id, its first image, the start of its question."""
    rank = os.environ.get("RANK")
    images = columns.get("images")
    image = images[0] if isinstance(images, list) and images else None
    path = image.get("path") if isinstance(image, dict) else image
    facts = {
        "id": columns.get("id"),
        "image": path if isinstance(path, str) else None,
        "question": last_question(columns.get("messages"))[:80],
    }
    present = [f"{name} {value!r:.90}" for name, value in facts.items() if value]
    return ", ".join([f"completion {index} of the batch" + (f" of rank {rank}" if rank else ""), *present])
