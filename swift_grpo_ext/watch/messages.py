"""What to say about steps in a row that show a fault: symptom, cause, and what fixes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.watch import causes
from swift_grpo_ext.watch.records import RewardFacts, RunFacts, StepFacts

Steps = Sequence[StepFacts]

FEW_GROUPS = 8
"""So many groups without an advantage may be chance: small batches must wait for more steps."""


def is_still(step: StepFacts, _run: RunFacts) -> bool:
    """No sampled parameter changed, nor did a float32 copy of one."""
    return step.moved == 0 and not step.master_moved


def has_no_advantage(step: StepFacts, _run: RunFacts) -> bool:
    """No completion was better or worse than its group."""
    return step.rollout.advantaged == 0


def least_scored(step: StepFacts) -> RewardFacts:
    """The reward function that left the most completions without a score."""
    return min(step.rollout.rewards, key=lambda reward: reward.scored)


def still(steps: Steps, run: RunFacts) -> str:
    """No parameter moved."""
    if has_no_advantage(steps[-1], run) and not _many_groups(steps):
        return ""
    return f"parameters did not move for {_number(steps)}: {causes.why_still(steps, run)}"


def no_advantage(steps: Steps, run: RunFacts) -> str:
    """No completion had an advantage, although something moves the parameters."""
    if is_still(steps[-1], run) or not _many_groups(steps):
        return ""
    movers = "KL, weight decay and momentum" if run.beta else "weight decay and momentum"
    reason = causes.why_no_advantage(steps, run)
    return f"no completion had an advantage for {_number(steps)}, only {movers} move the parameters: {reason}"


def all_skipped(steps: Steps, run: RunFacts) -> str:
    """Every update was dropped, although values still differ between steps."""
    if is_still(steps[-1], run):
        return ""
    return f"every update was dropped for {_number(steps)}: {causes.why_skipped(steps, run)}"


def some_skipped(steps: Steps, run: RunFacts) -> str:
    """A fifth of the last updates or more were dropped."""
    recent = steps[-20:]
    dropped = [step for step in recent if step.skipped]
    if len(dropped) == len(recent) or len(dropped) < math.ceil(len(recent) / 5):
        return ""
    return (
        f"{len(dropped)} of the last {len(recent)} updates were dropped: {causes.why_skipped(dropped, run)}"
    )


def coarse(steps: Steps, run: RunFacts) -> str:
    """Most updates are rounded away (B2)."""
    return (
        f"only {_percent(_mean(step.moved for step in steps))} of the parameters move per step: "
        f"{run.precision} weights are updated without float32 copies, and at learning rate "
        f"{steps[-1].learning_rate:g} most updates are smaller than half a representable step; use DeepSpeed "
        "(it keeps float32 copies), --torch_dtype float32, or LoRA"
    )


def infinite(steps: Steps, _run: RunFacts) -> str:
    """A reward function gave infinities (B4)."""
    reward = max(steps[-1].rollout.rewards, key=lambda reward: reward.infinite)
    return (
        f"reward {reward.name} gave {reward.infinite} of the completions an infinite value; they count as "
        "not scored, but bound what it returns"
    )


def unscored(steps: Steps, _run: RunFacts) -> str:
    """A reward function left completions without a score (B7)."""
    reward = least_scored(steps[-1])
    return (
        f"reward {reward.name} scored only {_percent(reward.scored)} of the completions; the others take no "
        "part in the update. None or NaN means that it could not: look for a missing column or an answer "
        "format"
    )


def few_varying(steps: Steps, run: RunFacts) -> str:
    """Nearly all groups are wasted."""
    if all(has_no_advantage(step, run) for step in steps):
        return ""
    return (
        f"in {_percent(_mean(step.rollout.zero_variance for step in steps))} of the groups every completion "
        "got the same reward, so they teach nothing: prompts are too easy or too hard, or the reward is too "
        "coarse (see --dynamic_sample)"
    )


def identical(steps: Steps, run: RunFacts) -> str:
    """The completions of nearly all groups are the same text."""
    if all(has_no_advantage(step, run) for step in steps):
        return ""
    share = _percent(_mean(step.rollout.identical for step in steps))
    return f"in {share} of the groups {causes.identical_completions(run)}"


def clipped(steps: Steps, _run: RunFacts) -> str:
    """Nearly every completion is cut off."""
    return (
        f"{_percent(_mean(step.rollout.clipped for step in steps))} of the completions are cut off at the "
        "length limit: raise --max_completion_length, or the model never ends its answer"
    )


def empty(steps: Steps, _run: RunFacts) -> str:
    """Completions say nothing."""
    return f"{_percent(_mean(step.rollout.empty for step in steps))} of the completions are empty"


def lost(_steps: Steps, run: RunFacts) -> str:
    """DeepSpeed drops micro-batches (B1)."""
    return (
        f"DeepSpeed {run.deepspeed} with ZeRO-2 and the optimizer on the CPU keeps the gradients of the "
        f"first and the last micro-batch only, {run.accumulation - 2} of {run.accumulation} are thrown away "
        f"({DEFECTS['B1'].reports[0]}): {DEFECTS['B1'].fix}"
    )


def _many_groups(steps: Steps) -> bool:
    return sum(step.rollout.groups for step in steps) >= FEW_GROUPS


def _number(steps: Steps) -> str:
    return f"{len(steps)} step{'s' if len(steps) > 1 else ''}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _mean(shares: Iterable[float | None]) -> float:
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else 0.0
