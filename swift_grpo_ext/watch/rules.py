"""From the facts of the last steps to what is wrong and why: a table of rules, each of two pure functions.

The figures that a run shows by itself prove little: on-policy the loss is 0 by construction, KL is not logged
when beta is 0, and weight decay moves parameters without any gradient. So "dead" means that no parameter
moved, or that no completion had an advantage; everything else is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile

from swift_grpo_ext.watch import causes, messages
from swift_grpo_ext.watch.records import RunFacts, StepFacts

Steps = Sequence[StepFacts]


class Level(str, Enum):
    """How bad a finding is."""

    WARN = "warn"
    DEAD = "dead"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        id: Name of the rule.
        level: `Level.DEAD` if nothing can be learned as it is.
        text: What and why, in one sentence.
        steps: For how many steps in a row.
    """

    id: str
    level: Level
    text: str
    steps: int


@dataclass(frozen=True)
class Rule:
    """One entry of the table.

    Attributes:
        id: Name of the finding.
        level: Of the finding.
        patience: Steps in a row for which `holds` must be true, as a multiple of the monitor's patience.
        holds: Whether one step shows the fault.
        tell: Text of the finding from the steps in a row that show it, oldest first; empty if it is none
            after all.
    """

    id: str
    level: Level
    patience: int
    holds: Callable[[StepFacts, RunFacts], bool]
    tell: Callable[[Steps, RunFacts], str]


def findings(history: Steps, run: RunFacts, patience: int) -> list[Finding]:
    """What the rules find in the steps so far, dead ones first.

    Args:
        history: Facts of steps in order, the newest last.
        run: Facts of the run.
        patience: Steps in a row that a fault must last (rules may take a multiple).
    """
    found = []
    for rule in RULES:
        streak = _streak(rule, history, run)
        if len(streak) >= rule.patience * patience and (text := rule.tell(streak, run)):
            found.append(Finding(rule.id, rule.level, text, len(streak)))
    return found


def _streak(rule: Rule, history: Steps, run: RunFacts) -> Steps:
    """The newest steps that show the fault, without a gap."""
    return list(takewhile(lambda step: rule.holds(step, run), reversed(history)))[::-1]


def _coarse(step: StepFacts, run: RunFacts) -> bool:
    return run.coarse_weights and bool(step.learning_rate) and 0 < (step.moved or 0) < 0.1


# Of those that are dead the first is the verdict; of warnings all are told.
RULES: tuple[Rule, ...] = (
    Rule("parameters-still", Level.DEAD, 1, messages.is_still, messages.still),
    Rule("all-skipped", Level.DEAD, 1, lambda step, run: step.skipped, messages.all_skipped),
    Rule("no-advantage", Level.DEAD, 1, messages.has_no_advantage, messages.no_advantage),
    Rule(
        "lost-micro-batches", Level.WARN, 1, lambda step, run: causes.loses_micro_batches(run), messages.lost
    ),
    Rule(
        "infinite-rewards",
        Level.WARN,
        0,
        lambda step, run: any(reward.infinite for reward in step.rollout.rewards),
        lambda steps, run: messages.infinite(steps, run) if steps else "",
    ),
    Rule("coarse-weights", Level.WARN, 1, _coarse, messages.coarse),
    Rule(
        "unscored",
        Level.WARN,
        1,
        lambda step, run: bool(step.rollout.rewards) and messages.least_scored(step).scored <= 0.9,
        messages.unscored,
    ),
    Rule("some-skipped", Level.WARN, 3, lambda step, run: True, messages.some_skipped),
    Rule(
        "few-varying-groups",
        Level.WARN,
        5,
        lambda step, run: (step.rollout.zero_variance or 0) >= 0.9,
        messages.few_varying,
    ),
    Rule(
        "identical", Level.WARN, 3, lambda step, run: (step.rollout.identical or 0) >= 0.9, messages.identical
    ),
    Rule("clipped", Level.WARN, 3, lambda step, run: (step.rollout.clipped or 0) >= 0.9, messages.clipped),
    Rule("empty", Level.WARN, 3, lambda step, run: (step.rollout.empty or 0) >= 0.5, messages.empty),
)
