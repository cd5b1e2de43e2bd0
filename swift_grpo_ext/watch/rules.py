"""From the facts of the last steps to what is wrong and why: a table of rules, each of two pure functions.

The figures that a run shows by itself prove little: on-policy the loss is 0 by construction, KL is not logged
when beta is 0, and weight decay moves parameters without any gradient. So "dead" means that no parameter
moved, or that no completion had an advantage; everything else is a warning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile

from swift_grpo_ext.watch import causes
from swift_grpo_ext.watch.facts import RewardFacts, RunFacts, StepFacts

Steps = Sequence[StepFacts]

FEW_GROUPS = 8
"""So many groups without an advantage may be chance: small batches must wait for more steps."""


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
        streak = list(takewhile(lambda step, rule=rule: rule.holds(step, run), reversed(history)))[::-1]
        if len(streak) >= rule.patience * patience and (text := rule.tell(streak, run)):
            found.append(Finding(rule.id, rule.level, text, len(streak)))
    return found


def _tell_still(steps: Steps, run: RunFacts) -> str:
    if _no_advantage(steps[-1], run) and not _many_groups(steps):
        return ""
    return f"parameters did not move for {_number(steps)}: {causes.why_still(steps, run)}"


def _tell_no_advantage(steps: Steps, run: RunFacts) -> str:
    if _still(steps[-1], run) or not _many_groups(steps):
        return ""
    movers = "KL, weight decay and momentum" if run.beta else "weight decay and momentum"
    reason = causes.why_no_advantage(steps, run)
    return f"no completion had an advantage for {_number(steps)}, only {movers} move the parameters: {reason}"


def _tell_all_skipped(steps: Steps, run: RunFacts) -> str:
    if _still(steps[-1], run):
        return ""
    return f"every update was dropped for {_number(steps)}: {causes.why_skipped(steps, run)}"


def _tell_some_skipped(steps: Steps, run: RunFacts) -> str:
    recent = steps[-20:]
    dropped = [step for step in recent if step.skipped]
    if len(dropped) == len(recent) or len(dropped) < math.ceil(len(recent) / 5):
        return ""
    return f"{len(dropped)} of the last {len(recent)} updates were dropped: {causes.why_skipped(dropped, run)}"


def _tell_coarse(steps: Steps, run: RunFacts) -> str:
    return (
        f"only {_percent(_mean(step.moved for step in steps))} of the parameters move per step: {run.precision} "
        f"weights are updated without float32 copies, and at learning rate {steps[-1].learning_rate:g} most "
        "updates are smaller than half a representable step; use DeepSpeed (it keeps float32 copies), "
        "--torch_dtype float32, or LoRA"
    )


def _tell_infinite(steps: Steps, run: RunFacts) -> str:
    del run
    reward = max(steps[-1].rollout.rewards, key=lambda reward: reward.infinite)
    return (
        f"reward {reward.name} returned an infinite value for {reward.infinite} completions, which count as not "
        "scored; bound what it returns"
    )


def _tell_unscored(steps: Steps, run: RunFacts) -> str:
    del run
    reward = _least_scored(steps[-1])
    return (
        f"reward {reward.name} scored only {_percent(reward.scored)} of the completions; the others take no part "
        "in the update. None means that it could not: look for a missing column or an answer format"
    )


def _tell_few_varying(steps: Steps, run: RunFacts) -> str:
    if all(_no_advantage(step, run) for step in steps):
        return ""
    return (
        f"in {_percent(_mean(step.rollout.zero_variance for step in steps))} of the groups every completion got "
        "the same reward, so they teach nothing: prompts are too easy or too hard, or the reward is too coarse "
        "(see --dynamic_sample)"
    )


def _tell_identical(steps: Steps, run: RunFacts) -> str:
    if all(_no_advantage(step, run) for step in steps):
        return ""
    share = _percent(_mean(step.rollout.identical for step in steps))
    return f"in {share} of the groups {causes.identical_completions(run)}"


def _tell_clipped(steps: Steps, run: RunFacts) -> str:
    del run
    return (
        f"{_percent(_mean(step.rollout.clipped for step in steps))} of the completions are cut off at the length "
        "limit: raise --max_completion_length, or the model never ends its answer"
    )


def _tell_empty(steps: Steps, run: RunFacts) -> str:
    del run
    return f"{_percent(_mean(step.rollout.empty for step in steps))} of the completions are empty"


def _tell_lost(steps: Steps, run: RunFacts) -> str:
    del steps
    return (
        f"DeepSpeed {run.deepspeed} with ZeRO-2 and the optimizer on the CPU keeps the gradients of the first and "
        f"the last micro-batch only, {run.accumulation - 2} of {run.accumulation} are thrown away (DeepSpeed "
        "#6550): deepspeed>=0.19.2, or zero2 without offload, or zero3_offload"
    )


def _still(step: StepFacts, run: RunFacts) -> bool:
    del run
    return step.moved == 0 and not step.master_moved


def _no_advantage(step: StepFacts, run: RunFacts) -> bool:
    del run
    return step.rollout.advantaged == 0


def _many_groups(steps: Steps) -> bool:
    return sum(step.rollout.groups for step in steps) >= FEW_GROUPS


def _coarse(step: StepFacts, run: RunFacts) -> bool:
    return run.coarse_weights and bool(step.learning_rate) and 0 < (step.moved or 0) < 0.1


def _least_scored(step: StepFacts) -> RewardFacts:
    return min(step.rollout.rewards, key=lambda reward: reward.scored)


# Of those that are dead the first is the verdict; of warnings all are told.
RULES: tuple[Rule, ...] = (
    Rule("parameters-still", Level.DEAD, 1, _still, _tell_still),
    Rule("all-skipped", Level.DEAD, 1, lambda step, run: step.skipped, _tell_all_skipped),
    Rule("no-advantage", Level.DEAD, 1, _no_advantage, _tell_no_advantage),
    Rule(
        "lost-micro-batches", Level.WARN, 1, lambda step, run: causes.loses_micro_batches(run), _tell_lost
    ),
    Rule(
        "infinite-rewards",
        Level.WARN,
        0,
        lambda step, run: any(reward.infinite for reward in step.rollout.rewards),
        lambda steps, run: _tell_infinite(steps, run) if steps else "",
    ),
    Rule("coarse-weights", Level.WARN, 1, _coarse, _tell_coarse),
    Rule(
        "unscored",
        Level.WARN,
        1,
        lambda step, run: bool(step.rollout.rewards) and _least_scored(step).scored <= 0.9,
        _tell_unscored,
    ),
    Rule("some-skipped", Level.WARN, 3, lambda step, run: True, _tell_some_skipped),
    Rule(
        "few-varying-groups",
        Level.WARN,
        5,
        lambda step, run: (step.rollout.zero_variance or 0) >= 0.9,
        _tell_few_varying,
    ),
    Rule("identical", Level.WARN, 3, lambda step, run: (step.rollout.identical or 0) >= 0.9, _tell_identical),
    Rule("clipped", Level.WARN, 3, lambda step, run: (step.rollout.clipped or 0) >= 0.9, _tell_clipped),
    Rule("empty", Level.WARN, 3, lambda step, run: (step.rollout.empty or 0) >= 0.5, _tell_empty),
)


def _number(steps: Steps) -> str:
    return f"{len(steps)} step{'s' if len(steps) > 1 else ''}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _mean(shares: object) -> float:
    known = [share for share in shares if share is not None]  # type: ignore[attr-defined]
    return sum(known) / len(known) if known else 0.0
