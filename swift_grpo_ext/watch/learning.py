"""The learning monitor: keeps the facts of the last steps, and says when the verdict on them changes."""

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
    """What is wrong with a run at a step, errors first; nothing if there are no findings."""

    step: int
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> list[Finding]:
        """What makes it dead: nothing can be learned as it is."""
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]

    @property
    def text(self) -> str:
        """The first error if there is one, else all findings; empty if the run looks well."""
        return "; ".join(finding.what for finding in self.errors[:1] or self.findings)


class LearningMonitor:
    """Judges a run step by step.

    A fault is told after `patience` steps in a row; a run that is dead for twice as many `should_stop`.
    """

    def __init__(self, run: RunFacts, patience: int = 3) -> None:
        self.run, self.patience = run, patience
        self.verdict = Verdict(step=0)
        self._history: deque[StepFacts] = deque(maxlen=max(_KEPT, 10 * patience))
        self._ever_moved = False
        self._told: dict[str, int] = {}

    def add(self, facts: StepFacts) -> list[Finding]:
        """Take in one step and judge anew; what is new in the verdict, told again after 50 steps."""
        self._history.append(facts)
        self._ever_moved = self._ever_moved or bool(facts.moved or facts.master_moved)
        before = {finding.rule for finding in self.verdict.findings}
        self._judge()
        new = [
            finding
            for finding in self.verdict.findings
            if finding.rule not in before and facts.step - self._told.get(finding.rule, -_AGAIN) >= _AGAIN
        ]
        self._told.update({finding.rule: facts.step for finding in new})
        return new

    @property
    def should_stop(self) -> bool:
        """The run has been dead for twice the patience."""
        return any(finding.steps >= 2 * self.patience for finding in self.verdict.errors)

    def at_end(self) -> list[Finding]:
        """Findings of a run that ended before its patience was over: no step of it moved a parameter."""
        if not self._history or self._ever_moved or self.verdict.errors:
            return []
        before = self.verdict
        self._judge(patience=1)
        found = self.verdict.errors
        self.verdict = Verdict(before.step, (*found, *before.findings))
        return found

    def _judge(self, patience: int = 0) -> None:
        found = findings(self._history, self.run, patience or self.patience)
        self.verdict = Verdict(self._history[-1].step, tuple(found))

    def state(self) -> dict[str, object]:
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
            self._judge()
