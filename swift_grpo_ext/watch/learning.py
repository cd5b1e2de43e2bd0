"""The learning monitor: keeps the facts of the last steps, and says when the verdict on them changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swift_grpo_ext.findings import Finding, Severity
from swift_grpo_ext.watch.records import RunFacts, StepFacts, as_json, step_from_json
from swift_grpo_ext.watch.rules import findings

_KEPT = 200
_AGAIN = 50


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a run at a step; nothing if `findings` is empty.

    Attributes:
        step: The step that it was given at.
        findings: Dead ones first.
    """

    step: int
    findings: tuple[Finding, ...] = ()

    @property
    def dead(self) -> bool:
        """Nothing can be learned as it is."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of the findings."""
        return tuple(finding.rule for finding in self.findings)

    @property
    def text(self) -> str:
        """The dead finding if there is one, else all of them; empty if the run looks well."""
        dead = [finding.what for finding in self.findings if finding.severity is Severity.ERROR]
        return dead[0] if dead else "; ".join(finding.what for finding in self.findings)


class LearningMonitor:
    """Judges a run step by step.

    Args:
        run: What does not change during the run.
        patience: Steps in a row that a fault must last before it is told. A run that is dead for twice that
            many steps `should_stop`.
    """

    def __init__(self, run: RunFacts, patience: int = 3) -> None:
        self.run = run
        self.patience = patience
        self.verdict = Verdict(step=0)
        self._history: deque[StepFacts] = deque(maxlen=max(_KEPT, 10 * patience))
        self._ever_moved = False
        self._told: dict[str, int] = {}

    def add(self, facts: StepFacts) -> list[Finding]:
        """Take in one step and judge anew.

        Returns:
            What is to be told: findings that the verdict before did not have. One that comes and goes is
            told again after 50 steps at the earliest.
        """
        self._history.append(facts)
        self._ever_moved = self._ever_moved or bool(facts.moved or facts.master_moved)
        before = self.verdict.ids
        found = findings(list(self._history), self.run, self.patience)
        self.verdict = Verdict(facts.step, tuple(found))
        new = [
            finding
            for finding in found
            if finding.rule not in before and facts.step - self._told.get(finding.rule, -_AGAIN) >= _AGAIN
        ]
        self._told.update({finding.rule: facts.step for finding in new})
        return new

    @property
    def should_stop(self) -> bool:
        """The run has been dead for twice the patience."""
        return any(
            finding.severity is Severity.ERROR and finding.steps >= 2 * self.patience
            for finding in self.verdict.findings
        )

    def at_end(self) -> list[Finding]:
        """Findings of a run that ended before its patience was over: no step of it moved a parameter."""
        if not self._history or self._ever_moved or self.verdict.dead:
            return []
        found = [
            finding
            for finding in findings(list(self._history), self.run, patience=1)
            if finding.severity is Severity.ERROR
        ]
        self.verdict = Verdict(self._history[-1].step, (*found, *self.verdict.findings))
        return found

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as JSON data."""
        return {
            "ever_moved": self._ever_moved,
            "told": self._told,
            "history": [as_json(step) for step in self._history],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken: a fault that began before a restart keeps its count of steps."""
        self._ever_moved = bool(state.get("ever_moved"))
        self._told = {str(name): int(step) for name, step in (state.get("told") or {}).items()}
        self._history.extend(step_from_json(step) for step in state.get("history", ()))
        if self._history:
            found = findings(list(self._history), self.run, self.patience)
            self.verdict = Verdict(self._history[-1].step, tuple(found))
