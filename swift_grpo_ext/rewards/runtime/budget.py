"""Reports of all ranks together: the metrics, and the decision whether the run goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime.ledger import Failure, Report

WINDOW = 1000  # completions of a reward, on all ranks, over which failures are counted
LEAST = 100  # completions of a reward before its share of failures says anything
DEAD = 2  # first batches; if all their completions failed, no score is to be expected


def added(reports: Iterable[dict[str, Report]]) -> dict[str, Report]:
    """The reports of all ranks, added up by reward."""
    total: dict[str, Report] = {}
    for report in reports:
        for name, part in report.items():
            total.setdefault(name, Report()).add(part)
    return total


@dataclass
class _History:
    """Outcomes of a reward's last completions."""

    failed: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    batches: int = 0  # in which it was asked
    first: Failure | None = None

    def add(self, report: Report) -> None:
        self.failed += [True] * report.failures + [False] * (report.completions - report.failures)
        self.batches += bool(report.completions)
        self.first = self.first or report.first

    def spent(self, allowed: float) -> bool:
        """True if more than this share of the completions failed, or all of them."""
        asked, failed = len(self.failed), sum(self.failed)
        too_many = failed > allowed * asked and (asked >= LEAST or not allowed)
        return too_many or (self.batches >= DEAD and failed == asked)


@dataclass
class Budget:
    """The failures that a run may have. Every rank keeps one, and all see the same reports."""

    allowed: float  # share of a reward's last `WINDOW` completions
    _histories: dict[str, _History] = field(default_factory=dict)

    def check(self, total: dict[str, Report]) -> None:
        """Take in all ranks' reports; raises on all alike if a contract is broken or the budget spent.

        Raises:
            RewardError: A reward broke its contract, more completions failed than are allowed, or all did.
        """
        for name, report in sorted(total.items()):
            if report.first is not None and report.first.kind == "refused":
                raise RewardError(report.first.what, where=f"{report.first.reward}: {report.first.row}")
            history = self._histories.setdefault(name, _History())
            history.add(report)
            if history.first is not None and history.spent(self.allowed):
                raise RewardError(
                    f"{history.first}; {sum(history.failed)} of the last {len(history.failed)} completions "
                    f"failed, {self.allowed:.0%} of them may",
                    where="all ranks end here",
                    fix="fix the reward, or raise SWIFT_GRPO_EXT_REWARD_FAILURES or _REWARD_TIMEOUT"
                    f"\n{history.first.details}".rstrip(),
                )


def metrics(total: dict[str, Report]) -> dict[str, float]:
    """Figures for the log, by reward: failures, timeouts, the share not read."""
    figures: dict[str, float] = {}
    for name, report in total.items():
        counts = {"timeouts": report.timeouts, "failures": report.failures}
        figures |= {f"rewards/{name}/{kind}": float(amount) for kind, amount in counts.items()}
        if report.completions:
            figures[f"unread/{name}"] = report.unread / report.completions
    return figures
