"""What happened to the completions of each reward: counted, failed ones as a file, said in a line once."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from swift_grpo_ext.rewards.contract import Columns, last_question

MAX_REPLAY = 1 << 30  # bytes of a process's file of failed completions, after which no more are kept
MAX_TEXT = 100_000  # characters of a completion or a column in it
_SUMMED = ("completions", "scored", "unread", "failures", "timeouts", "unscored", "counts", "seconds")
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
    kind: str  # error, timeout, or refused: it broke its contract, which ends the run at once
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
    seconds: list[float] = field(default_factory=list)  # times of single completions
    counts: Counter[str] = field(default_factory=Counter)  # what else it counts, as a judge's tokens
    first: Failure | None = None  # the first failure, and any that was refused
    example: str = ""  # the reason of the first that was not read

    def add(self, other: Report) -> None:
        """Take in other counts, of another rank or of more completions."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.example = self.example or other.example
        if self.first is None or (other.first and other.first.kind == "refused"):
            self.first = other.first or self.first

    def percentile(self, share: float) -> float:
        """Time in seconds that this share of the completions took at most; there must be one."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


_reports: dict[str, Report] = {}  # of this process, by reward


def count(reward: str, report: Report) -> None:
    """Add what happened to some completions of a reward in this process."""
    _reports.setdefault(reward, Report()).add(report)


def drain(reward: str) -> Report:
    """What a reward has counted since the last call."""
    report = _reports.get(reward, Report())
    _reports[reward] = Report()
    return report


def drain_all() -> dict[str, Report]:
    """The same of every reward that this process has asked."""
    return {name: drain(name) for name in list(_reports)}


def row_in_words(index: int, columns: Columns) -> str:
    """Which row this is: its place in the batch, its id, its first image, the start of its question."""
    rank = os.environ.get("RANK")
    parts = [f"completion {index} of the batch" + (f" of rank {rank}" if rank else "")]
    named = [key for key in ("id", "row_id", "prompt_id") if columns.get(key)][:1]
    parts += [f"{key} {columns[key]!r:.60}" for key in named]
    images = columns.get("images")
    if isinstance(images, list) and images:
        path = images[0].get("path") if isinstance(images[0], dict) else images[0]
        has_path = isinstance(path, str) and len(path) < 4096
        parts.append(f"image {path!r:.80}" if has_path else "image without a path")
    if question := last_question(columns.get("messages")):
        parts.append(f"question {question[:80]!r}")
    return ", ".join(parts)


def replay_file(output_dir: str | None) -> str:
    """Where this rank writes its failures; empty outside of a run."""
    name = f"reward_failures.rank{os.environ.get('RANK', '0')}.jsonl"
    return str(Path(output_dir) / name) if output_dir else ""


def record_failure(failure: Failure, completion: str, columns: Columns) -> None:
    """Append one failed completion with its row; images stay as paths, long columns are left out."""
    path = Path(failure.replay)
    short = {name: value for name, value in columns.items() if len(_as_json(value)) <= MAX_TEXT}
    line = {
        **{name: value for name, value in short.items() if value is not None},
        "completion": str(completion)[:MAX_TEXT],
        "reward": failure.reward,
        "failure": {"kind": failure.kind, "what": failure.what, "details": failure.details},
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            if file.tell() <= MAX_REPLAY:
                file.write(_as_json(line) + "\n")
    except OSError as error:
        say(f"failed completions are not kept in {path}: {error}")


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=lambda inner: f"<{type(inner).__name__}>")
