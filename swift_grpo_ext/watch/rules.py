"""From the facts of the last steps to what is wrong and why: a table of rules, each of two pure functions.

The figures that a run shows by itself prove little: on-policy the loss is 0 by construction, KL is not logged
when beta is 0, and weight decay moves parameters without any gradient. So "dead" means that no parameter
moved, or that no completion had an advantage; everything else is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from swift_grpo_ext.findings import Finding, Problem, Rule, Severity
from swift_grpo_ext.watch import agreement, causes, messages
from swift_grpo_ext.watch.records import RunFacts, StepFacts

Steps = Sequence[StepFacts]


@dataclass(frozen=True)
class Window:
    """What the rules look at.

    Attributes:
        history: Facts of steps in order, the newest last.
        run: Facts of the run.
        patience: Steps in a row that a fault must last (rules may take a multiple).
    """

    history: Steps
    run: RunFacts
    patience: int


def findings(history: Steps, run: RunFacts, patience: int) -> list[Finding]:
    """What the rules find in the steps so far, errors first: with one of them nothing can be learned."""
    window = Window(history, run, patience)
    return [finding for rule in RULES for finding in rule.findings(window)]


def _lasting(
    id: str,
    severity: Severity,
    patience: int,
    holds: Callable[[StepFacts, RunFacts], bool],
    tell: Callable[[Steps, RunFacts], str],
) -> Rule[Window]:
    """A rule about a fault that must last.

    Args:
        id: Of the rule.
        severity: Of the finding.
        patience: Steps in a row for which `holds` must be true, as a multiple of the monitor's patience.
        holds: Whether one step shows the fault.
        tell: What to say of the steps in a row that show it, oldest first; empty if it is none after all.
    """

    def look(window: Window) -> Iterator[Problem]:
        run = window.run
        streak = list(takewhile(lambda step: holds(step, run), reversed(window.history)))[::-1]
        if len(streak) >= patience * window.patience and (text := tell(streak, run)):
            yield Problem(text, steps=len(streak))

    return Rule(id, severity, look)


def _coarse(step: StepFacts, run: RunFacts) -> bool:
    return run.coarse_weights and bool(step.learning_rate) and 0 < (step.moved or 0) < 0.1


def _engine(id: str, severity: Severity) -> Rule[Window]:
    """A rule about the last comparison of engine and trainer, which one check proves."""
    return _lasting(
        id,
        severity,
        0,
        lambda step, run: step.engine.rule == id,
        lambda steps, run: steps[-1].engine.text if steps else "",
    )


# Of the errors the first is the verdict; of the warnings all are reported.
RULES: tuple[Rule[Window], ...] = (
    _lasting("parameters-still", Severity.ERROR, 1, messages.is_still, messages.still),
    _lasting("all-skipped", Severity.ERROR, 1, lambda step, run: step.skipped, messages.all_skipped),
    _lasting("no-advantage", Severity.ERROR, 1, messages.has_no_advantage, messages.no_advantage),
    _engine(agreement.PROMPT, Severity.ERROR),
    _engine(agreement.WEIGHTS, Severity.ERROR),
    _engine(agreement.SAMPLING, Severity.ERROR),
    _engine(agreement.NUMERICS, Severity.WARNING),
    _lasting(
        "lost-micro-batches",
        Severity.WARNING,
        1,
        lambda step, run: causes.loses_micro_batches(run),
        messages.lost,
    ),
    _lasting(
        "infinite-rewards",
        Severity.WARNING,
        0,
        lambda step, run: any(reward.infinite for reward in step.rollout.rewards),
        lambda steps, run: messages.infinite(steps, run) if steps else "",
    ),
    _lasting("coarse-weights", Severity.WARNING, 1, _coarse, messages.coarse),
    _lasting(
        "unscored",
        Severity.WARNING,
        1,
        lambda step, run: bool(step.rollout.rewards) and messages.least_scored(step).scored <= 0.9,
        messages.unscored,
    ),
    _lasting("some-skipped", Severity.WARNING, 3, lambda step, run: True, messages.some_skipped),
    _lasting(
        "few-varying-groups",
        Severity.WARNING,
        5,
        lambda step, run: (step.rollout.zero_variance or 0) >= 0.9,
        messages.few_varying,
    ),
    _lasting(
        "identical",
        Severity.WARNING,
        3,
        lambda step, run: (step.rollout.identical or 0) >= 0.9,
        messages.identical,
    ),
    _lasting(
        "clipped", Severity.WARNING, 3, lambda step, run: (step.rollout.clipped or 0) >= 0.9, messages.clipped
    ),
    _lasting(
        "empty", Severity.WARNING, 3, lambda step, run: (step.rollout.empty or 0) >= 0.5, messages.empty
    ),
)
