"""Why parameters stand still or completions have no advantage: the first cause that fits, in words."""

import math
from collections.abc import Sequence

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.watch.records import RewardFacts, RunFacts, StepFacts

Window = Sequence[StepFacts]

_NOISE = 1e-6  # deviations of a reward below this are noise, where ms-swift finds it equal in every group


def why_still(window: Window, run: RunFacts) -> str:
    """Why no parameter moved in these steps."""
    last = window[-1]
    if run.learning_rate == 0:
        return "the learning rate is 0: give another --learning_rate"
    if all(step.learning_rate == 0 for step in window):
        return (
            f"the learning rate was 0 (step {last.step} of {run.max_steps}); with any warmup the first step "
            "runs at 0: more steps, or --warmup_ratio 0"
        )
    if all(step.skipped for step in window):
        return why_skipped(window, run)
    if all(step.rollout.advantaged == 0 for step in window):
        return why_no_advantage(window, run)
    if all(step.tokens == 0 for step in window):
        return (
            "no completion token is left in the loss: every completion is cut off, empty or unscored (see "
            "--overlong_filter and --max_completion_length)"
        )
    if all(step.grad_norm == 0 for step in window):
        return "advantages differ but the gradient is 0: the trained modules do not take part in the forward"
    if run.coarse_weights:
        return (
            f"at learning rate {last.learning_rate:g} every update is smaller than half a representable step "
            f"of {run.precision}, and no float32 copies are kept: use DeepSpeed, --torch_dtype float32, or "
            "LoRA"
        )
    return (
        f"grad_norm is {_figure(last.grad_norm)} and the learning rate {_figure(last.learning_rate)}, so the "
        "optimizer does not hold these parameters, or it drops its update"
    )


def why_skipped(window: Window, run: RunFacts) -> str:
    """Why updates were dropped."""
    last = window[-1]
    if run.temperature == 0:
        return "logits are divided by a temperature of 0: --temperature 1, or 0.1 for nearly greedy sampling"
    for reward in last.rollout.rewards:
        if reward.infinite:
            return f"grad_norm is not finite, and reward {reward.name} returned an infinite value"
    if last.grad_norm is None or math.isfinite(last.grad_norm):
        return "the optimizer or its loss scaler skipped the step"
    return "grad_norm is not finite, and ms-swift drops such updates silently"


def why_no_advantage(window: Window, run: RunFacts) -> str:
    """Why every advantage is 0."""
    last = window[-1].rollout
    if run.num_generations == 1:
        return "a group of one completion has nothing to be compared with (--num_generations 1)"
    if last.rewards and all(reward.scored == 0 for reward in last.rewards):
        names = ", ".join(reward.name for reward in last.rewards)
        return _joined(f"no completion was scored (reward {names} gave no number for any)", last.example)
    if all(step.rollout.identical == 1 for step in window):
        return f"in every group {identical_completions(run)}"
    noise = f" but for noise of {last.reward_std:.1g}" if 0 < (last.reward_std or 0) < _NOISE else ""
    constant = _joined(*map(_constant, last.rewards))
    differ = "" if constant else ", although rewards differ between groups"
    return _joined(f"every reward in every group is equal{noise}{differ}", constant, last.example)


def identical_completions(run: RunFacts) -> str:
    """In words: the completions of a group are the same, and what may cause it."""
    return (
        f"all completions are the same text (temperature {run.temperature:g}): raise --temperature, --top_p "
        "or --top_k, or the policy has collapsed"
    )


def loses_micro_batches(run: RunFacts) -> bool:
    """ZeRO-2 with the optimizer on the CPU, and so many micro-batches that DeepSpeed drops some (B1)."""
    return (
        run.zero_stage == 2
        and run.offload_optimizer
        and run.accumulation > 2
        and DEFECTS["B1"].harms({"deepspeed": run.deepspeed or None}, run.healed)
    )


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _constant(reward: RewardFacts) -> str:
    if reward.commonest is None or reward.commonest_share < 0.9:
        return ""
    return f"reward {reward.name} returned {reward.commonest:g} for {100 * reward.commonest_share:.3g} %"


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
