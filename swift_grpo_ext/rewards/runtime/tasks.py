"""Rewards of a mixed dataset, task by task."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

WARM_UP = 64
"""Scores of a task that must have been seen before it is scaled."""
KEPT = 0.99
"""Share of the past that a running variance keeps, per batch."""


def task_means(rewards: Tensor, tasks: Sequence[object], names: Sequence[str]) -> dict[str, float]:
    """Mean score of each reward for each task that it scored; empty if the dataset has only one task.

    `rewards` has the shape (completions of all ranks, rewards), NaN for "not scored".
    """
    distinct = sorted({str(task) for task in tasks if task is not None})
    if len(distinct) < 2:
        return {}
    figures = {}
    for task in distinct:
        rows = [row for row, its in enumerate(tasks) if its is not None and str(its) == task]
        for column, name in enumerate(names):
            scores = [score for score in rewards[rows, column].tolist() if not math.isnan(score)]
            if scores:
                figures[f"rewards/{name}/{task}"] = sum(scores) / len(scores)
    return figures


@dataclass
class _Running:
    mean: float = 0.0
    variance: float = 0.0
    seen: int = 0

    def take(self, scores: list[float]) -> None:
        mean = sum(scores) / len(scores)
        variance = sum((score - mean) ** 2 for score in scores) / len(scores)
        kept = KEPT if self.seen >= WARM_UP else self.seen / (self.seen + len(scores))
        shift = mean - self.mean
        self.variance = kept * self.variance + (1 - kept) * variance + kept * (1 - kept) * shift**2
        self.mean += (1 - kept) * shift
        self.seen += len(scores)


@dataclass
class TaskScales:
    """Running standard deviation of each reward for each task, the same on every rank.

    It starts anew when a run is resumed.
    """

    _running: dict[tuple[int, str], _Running] = field(default_factory=lambda: defaultdict(_Running))

    def scaled(self, rewards: Tensor, tasks: Sequence[object], columns: Sequence[int]) -> Tensor:
        """These columns of rewards ``(completions of all ranks, rewards)``, divided by their task's
        deviation.

        NaN is "not scored"; None is a task, too.
        """
        result = rewards.clone()
        rows_of: dict[str, list[int]] = defaultdict(list)
        for row, task in enumerate(tasks):
            rows_of[str(task)].append(row)
        for task, rows in rows_of.items():
            for column in columns:
                known = [score for score in rewards[rows, column].tolist() if not math.isnan(score)]
                if not known:
                    continue
                running = self._running[column, task]
                running.take(known)
                if running.seen >= WARM_UP and running.variance > 1e-8:
                    result[rows, column] /= math.sqrt(running.variance)
        return result
