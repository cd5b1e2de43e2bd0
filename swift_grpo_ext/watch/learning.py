"""The learning monitor: keeps the facts of the last steps, and reports when their verdict changes."""

from collections import deque

from swift_grpo_ext.watch.causes import Cause, first_cause
from swift_grpo_ext.watch.records import RunFacts, StepFacts

_KEPT = 200
_AGAIN = 50


class LearningMonitor:
    """Judges a run step by step; most faults are reported after `patience` steps in a row."""

    def __init__(self, run: RunFacts, patience: int = 3) -> None:
        self.run = run
        self.patience = patience
        self.step = 0  # the last step
        self.cause: Cause | None = None  # the fault at that step
        self.history: deque[StepFacts] = deque(maxlen=_KEPT)
        self._ever_moved = False
        self._told: dict[str, int] = {}

    def add(self, facts: StepFacts) -> Cause | None:
        """Add a step and judge again; returns the cause if it is new or was last reported 50 steps ago."""
        self.history.append(facts)
        self.step = facts.step
        self._ever_moved = self._ever_moved or bool(facts.moved or facts.master_moved)
        before, self.cause = self.cause, first_cause(self.history, self.run, self.patience)
        cause = self.cause
        if cause is None or (before and before.id == cause.id):
            return None
        if facts.step - self._told.get(cause.id, -_AGAIN) < _AGAIN:
            return None
        self._told[cause.id] = facts.step
        return cause

    @property
    def should_stop(self) -> bool:
        """True if the run has been dead for twice the patience."""
        return bool(self.cause and self.cause.dead and self.cause.steps >= 2 * self.patience)

    def at_end(self) -> Cause | None:
        """The cause of a run too short for the patience in which no step moved a parameter; else None."""
        if not self.history or self._ever_moved or (self.cause and self.cause.dead):
            return None
        cause = first_cause(self.history, self.run, patience=1)
        if cause and cause.dead:
            self.cause = cause
            return cause
        return None
