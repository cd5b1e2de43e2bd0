"""The table that every rule of preflight stands in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from swift_grpo_ext.doctor.check.arguments import NotKnown
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Finding, Problem, RuleTable, Severity

SWIFT = "https://github.com/modelscope/ms-swift"
Look = Callable[[Run], Iterable[Problem]]


class CheckRules(RuleTable[Run]):
    """The rules, and which of them hold for GRPO alone.

    A rule asks the run for what it needs. Where the launch takes a value from somewhere else, asking raises
    `NotKnown`, and the rule says nothing more: what is not known is not judged.
    """

    def __init__(self) -> None:
        super().__init__()
        self.grpo_only: set[str] = set()

    def rule(
        self, id: str, severity: Severity, *, grpo_only: bool = False, **about: Any
    ) -> Callable[[Look], Look]:
        """Decorator: put a function into the table.

        Args:
            id: As in `RuleTable.rule`, with `severity` and the rest.
            severity: Of everything that it finds.
            grpo_only: Its subject exists in GRPO alone.
            about: Symptoms, cause and reports.
        """
        if grpo_only:
            self.grpo_only.add(id)
        return super().rule(id, severity, **about)

    def judged(self, run: Run) -> tuple[list[Finding], set[str]]:
        """What the rules find, and what they could not look at."""
        found: list[Finding] = []
        not_known: set[str] = set()
        for rule in self.rules:
            if rule.id in self.grpo_only and not run.grpo:
                continue
            try:
                found.extend(rule.findings(run))  # keeps what came before a value that is not known
            except NotKnown as missing:
                not_known.add(missing.name)
        return found, not_known


table = CheckRules()
