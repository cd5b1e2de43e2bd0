"""The learning monitor: keeps the facts of the last steps, and says when the verdict on them changes."""

from collections import deque

from swift_grpo_ext.findings import Finding, Severity
from swift_grpo_ext.watch.records import RunFacts, StepFacts
from swift_grpo_ext.watch.rules import findings

_KEPT = 200
_AGAIN = 50


class LearningMonitor:
    """Judges a run step by step; a fault is told after `patience` steps in a row."""

    def __init__(self, run: RunFacts, patience: int = 3) -> None:
        self.run = run
        self.patience = patience
        self.step = 0  # the last one
        self.findings: list[Finding] = []  # what is wrong at it, errors first
        self._history: deque[StepFacts] = deque(maxlen=max(_KEPT, 10 * patience))
        self._ever_moved = False
        self._told: dict[str, int] = {}

    def add(self, facts: StepFacts) -> list[Finding]:
        """Take in one step and judge anew; what is new in the verdict, told again after 50 steps."""
        self._history.append(facts)
        self.step = facts.step
        self._ever_moved = self._ever_moved or bool(facts.moved or facts.master_moved)
        before = {finding.rule for finding in self.findings}
        self.findings = findings(self._history, self.run, self.patience)
        new = [
            finding
            for finding in self.findings
            if finding.rule not in before and facts.step - self._told.get(finding.rule, -_AGAIN) >= _AGAIN
        ]
        self._told.update({finding.rule: facts.step for finding in new})
        return new

    @property
    def errors(self) -> list[Finding]:
        """What makes the run dead: nothing can be learned as it is."""
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]

    @property
    def should_stop(self) -> bool:
        """The run has been dead for twice the patience."""
        return any(finding.steps >= 2 * self.patience for finding in self.errors)

    def at_end(self) -> list[Finding]:
        """Findings of a run that ended before its patience was over: no step of it moved a parameter."""
        if not self._history or self._ever_moved or self.errors:
            return []
        before = self.findings
        self.findings = findings(self._history, self.run, patience=1)
        found = self.errors
        self.findings = [*found, *before]
        return found
