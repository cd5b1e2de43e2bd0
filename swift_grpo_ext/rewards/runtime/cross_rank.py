"""What all ranks make of their reports together: metrics, whether the run goes on, figures by task."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime.ledger import Failure, Report

if TYPE_CHECKING:
    from torch import Tensor

WINDOW = 1000  # completions of a reward, on all ranks, over which failures are counted


def added(reports: Sequence[dict[str, Report]]) -> dict[str, Report]:
    """The reports of all ranks, added up by reward."""
    total: dict[str, Report] = {}
    for report in reports:
        for name, part in report.items():
            total.setdefault(name, Report()).add(part)
    return total


@dataclass
class Budget:
    """The failures that a run may have. Every rank keeps one, and all see the same reports."""

    allowed: int  # failed completions of one reward within the last `WINDOW` completions
    _steps: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    _first: dict[str, Failure] = field(default_factory=dict)

    def check(self, total: dict[str, Report]) -> None:
        """Take in all ranks' reports; raises on all alike if a contract is broken or the budget spent.

        Raises:
            RewardError: A reward broke its contract, or more completions failed than are allowed.
        """
        for name, report in sorted(total.items()):
            if report.first is not None:
                if report.first.kind == "refused":
                    raise RewardError(report.first.what, where=f"{name}: {report.first.row}")
                self._first.setdefault(name, report.first)
            steps = self._steps.setdefault(name, deque())
            steps.append((report.completions or report.failures, report.failures))
            while len(steps) > 1 and sum(count for count, _ in steps) - steps[0][0] >= WINDOW:
                steps.popleft()
            if (failures := sum(failed for _, failed in steps)) > self.allowed:
                first = self._first[name]
                details = f"\n{first.details}" if first.details else ""
                raise RewardError(
                    f"{first}; {failures} of the last completions failed, {self.allowed} may",
                    where="all ranks end here",
                    fix="fix the reward (reward_failures.rank*.jsonl in the output folder replays it), or "
                    f"raise SWIFT_GRPO_EXT_REWARD_FAILURES or _REWARD_TIMEOUT{details}",
                )


def metrics(total: dict[str, Report]) -> dict[str, float]:
    """Figures for the log, by reward: seconds per completion, failures, timeouts, rows without a score."""
    figures: dict[str, float] = {}
    for name, report in total.items():
        if report.seconds:
            figures[f"rewards/{name}/seconds_p50"] = report.percentile(0.5)
            figures[f"rewards/{name}/seconds_p95"] = report.percentile(0.95)
        figures[f"rewards/{name}/timeouts"] = float(report.timeouts)
        figures[f"rewards/{name}/failures"] = float(report.failures)
        figures |= {f"rewards/{name}/{what}": float(amount) for what, amount in report.counts.items()}
    return figures


def task_means(rewards: Tensor, tasks: Sequence[object], names: Sequence[str]) -> dict[str, float]:
    """Mean score by task of ``(completions of all ranks, rewards)``; empty with only one task."""
    distinct = sorted({str(task) for task in tasks if task is not None})
    if len(distinct) < 2:
        return {}
    figures = {}
    for task, rows in _rows_by_task(tasks).items():
        for column, name in enumerate(names):
            if task in distinct and (scores := _known(rewards, rows, column)):
                figures[f"rewards/{name}/{task}"] = sum(scores) / len(scores)
    return figures


def _rows_by_task(tasks: Sequence[object]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, task in enumerate(tasks):
        rows[str(task)].append(row)
    return rows


def _known(rewards: Tensor, rows: list[int], column: int) -> list[float]:
    return [score for score in rewards[rows, column].tolist() if not math.isnan(score)]
