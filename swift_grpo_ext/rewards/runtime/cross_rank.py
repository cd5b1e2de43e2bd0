"""What all ranks make of their reports together: metrics, and whether the run goes on."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime.ledger import Failure, Report

WINDOW = 1000
"""Completions of a reward, on all ranks, over which failures are counted."""


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
        """Take in a step's reports of all ranks.

        Raises on all ranks alike, with the first failure, if a reward broke its contract or failed too often.
        """
        for name, report in sorted(total.items()):
            if report.first is not None:
                if report.first.kind == "refused":
                    raise RewardError(report.first.what, where=f"{name}: {report.first.row}")
                self._first.setdefault(name, report.first)
            failures = self._within_window(name, report)
            if failures > self.allowed:
                raise _ended(self._first[name], failures, self.allowed)

    def _within_window(self, name: str, report: Report) -> int:
        steps = self._steps.setdefault(name, deque())
        steps.append((report.completions or report.failures, report.failures))
        while len(steps) > 1 and sum(count for count, _ in steps) - steps[0][0] >= WINDOW:
            steps.popleft()
        return sum(failures for _, failures in steps)


def _ended(first: Failure, failures: int, allowed: int) -> RewardError:
    details = f"\n{first.details}" if first.details else ""
    return RewardError(
        f"{first}; {failures} of the last completions failed, {allowed} may",
        where="all ranks end here",
        fix="fix the reward (reward_failures.rank*.jsonl in the output folder replays it), or raise "
        f"SWIFT_GRPO_EXT_REWARD_FAILURES or _REWARD_TIMEOUT{details}",
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


def unscored_in_words(reasons: Counter[str]) -> str:
    """The reasons for rows without a score, the most frequent first."""
    return "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(5))
