"""Causes of learning nothing, or less than possible, over the last steps; the first that holds is reported.

Loss, KL and movement alone prove little (weight decay moves parameters without any gradient). So a run is
dead if no completion was scored, no parameter moved, no completion had an advantage, or engine and trainer
run different models; everything else is a warning.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean

from swift_grpo_ext.watch import records
from swift_grpo_ext.watch.records import MOST, RewardFacts, RunFacts, StepFacts

Steps = Sequence[StepFacts]
Holds = Callable[[StepFacts], bool]
Words = Callable[[Steps, RunFacts], str]

FEW_GROUPS = 8  # fewer groups without an advantage may be chance: small batches must wait for more steps
_HALF = 0.5
_RECENT = 20  # steps in which dropped updates are counted
_LASTING = 3  # steps in a row in which the same reward skips completions: a batch may lack its rows by chance


@dataclass(frozen=True)
class Cause:
    """A reason why a run does not learn, or learns less."""

    id: str  # short and stable: events, docs and tests refer to it
    text: str
    dead: bool = False  # the run cannot learn anything
    steps: int = 0  # number of steps in a row


@dataclass(frozen=True)
class _Rule:
    id: str
    holds: Holds
    words: Words  # text for the last steps that it holds for; empty if it is not the cause after all
    after: int  # multiple of the patience
    dead: bool


_RULES: list[_Rule] = []  # the dead ones first


def first_cause(history: Steps, run: RunFacts, patience: int) -> Cause | None:
    """The first of the causes that has lasted long enough; None if nothing is wrong.

    Args:
        history: The steps so far, in order.
        run: Facts that do not change during the run.
        patience: Steps in a row that most causes must last; some need a multiple, some a single step.
    """
    for rule in _RULES:
        last = list(takewhile(rule.holds, reversed(history)))[::-1]
        if len(last) >= max(1, rule.after * patience) and (text := rule.words(last, run)):
            return Cause(rule.id, text, rule.dead, len(last))
    return None


def _cause(id: str, holds: Holds, after: int = 1, dead: bool = False) -> Callable[[Words], Words]:
    def add(words: Words) -> Words:
        _RULES.append(_Rule(id, holds, words, after, dead))
        return words

    return add


def _is_still(step: StepFacts) -> bool:
    if step.moved is None:
        return step.grad_norm == 0
    return step.moved == 0 and not step.master_moved


def _is_cut_off(step: StepFacts) -> bool:
    return (step.rollout.clipped or 0) >= MOST


def _has_no_advantage(step: StepFacts) -> bool:
    return step.rollout.advantaged == 0


@_cause("nothing-scored", lambda step: not step.rollout.is_scored, dead=True)
def _unscored_at_all(steps: Steps, _run: RunFacts) -> str:
    last = steps[-1].rollout
    names = ", ".join(reward.name for reward in last.rewards)
    reasons = (reward.reason for reward in last.rewards if reward.reason)
    why = next(reasons, "it returned None, or failed, for each")
    text = f"no completion was scored for {_number(steps)} (reward {names} gave no number for any: {why})"
    return _joined(text, last.example)


@_cause("parameters-still", _is_still, dead=True)
def _still(steps: Steps, run: RunFacts) -> str:
    if _has_no_advantage(steps[-1]) and not _many_groups(steps):
        return ""
    if steps[-1].moved is None:
        return f"the gradient was 0 for {_number(steps)}"
    return f"parameters did not move for {_number(steps)}: {_why_still(steps, run)}"


@_cause("no-advantage", _has_no_advantage, dead=True)
def _no_advantage(steps: Steps, run: RunFacts) -> str:
    if not _many_groups(steps):
        return ""
    movers = "KL, weight decay and momentum" if run.beta else "weight decay and momentum"
    reason = _why_no_advantage(steps, run)
    return f"no completion had an advantage for {_number(steps)}, only {movers} move the parameters: {reason}"


def _apart(steps: Steps, _run: RunFacts) -> str:
    return steps[-1].engine.text


def _has_fault(rule: str) -> Holds:
    return lambda step: step.engine.rule == rule


for _fault in (records.PROMPT, records.WEIGHTS):
    _cause(_fault, _has_fault(_fault), after=0, dead=True)(_apart)
_cause(records.NUMERICS, _has_fault(records.NUMERICS), after=0)(_apart)


@_cause("cut-off", _is_cut_off, after=2)
def _cut_off(steps: Steps, _run: RunFacts) -> str:
    share = fmean(step.rollout.clipped or 0 for step in steps)
    which = "all completions" if share == 1 else f"{_percent(share)} of the completions"
    return (
        f"{which} are cut off at the length limit: raise --max_completion_length, or the model never ends "
        "its answer"
    )


@_cause("unread", lambda step: (step.rollout.empty or 0) >= _HALF or _most_unread(step).unread >= _HALF)
def _unread(steps: Steps, _run: RunFacts) -> str:
    last = steps[-1]
    if _is_cut_off(last):  # the real cause, reported if it lasts
        return ""
    if (last.rollout.empty or 0) >= _HALF:
        return f"{_percent(last.rollout.empty or 0)} of the completions are empty"
    reward = _most_unread(last)
    example = f", such as {reward.reason}" if reward.reason else ""
    return (
        f"unread: {_percent(reward.unread)} of the completions hold no answer that reward {reward.name} reads"
        f"{example}: ask for its form in the prompt or by --system (docs: Where an answer stands)"
    )


@_cause("unscored", lambda step: bool(_hardly_scored(step)))
def _unscored(steps: Steps, _run: RunFacts) -> str:
    lasting = set.intersection(*map(_hardly_scored, steps[-_LASTING:]))
    rewards = [reward for reward in steps[-1].rollout.rewards if reward.name in lasting]
    if not rewards:
        return ""
    reward = min(rewards, key=lambda reward: reward.scored)
    why = (
        reward.reason or "None or NaN means that it could not; look for a missing column or an answer format"
    )
    return (
        f"reward {reward.name} scored only {_percent(reward.scored)} of the completions that it is for; the "
        f"others take no part in the update: {why}"
    )


@_cause("some-skipped", lambda step: True, after=3)
def _some_skipped(steps: Steps, run: RunFacts) -> str:
    """Holds if at least a fifth of the last updates were dropped."""
    recent = steps[-_RECENT:]
    dropped = [step for step in recent if step.skipped]
    if len(dropped) < math.ceil(len(recent) / 5):
        return ""
    why = _why_skipped(dropped, run)
    return f"{len(dropped)} of the last {len(recent)} updates were dropped: {why}"


@_cause("few-varying-groups", lambda step: _same_share(step) >= MOST, after=3)
def _few_varying(steps: Steps, run: RunFacts) -> str:
    share = _percent(fmean(map(_same_share, steps)))
    if all((step.rollout.identical or 0) >= MOST for step in steps):
        return f"in {share} of the groups {_identical_completions(run)}"
    return (
        f"in {share} of the groups every completion got the same reward, so they teach nothing: prompts are "
        "too easy or too hard, or the reward is too coarse (see --dynamic_sample)"
    )


# Last, as it reports only a run that learns slowly.
@_cause("coarse-weights", lambda step: bool(step.learning_rate) and 0 < (step.moved or 0) < 1 - MOST)
def _coarse(steps: Steps, run: RunFacts) -> str:
    if not run.coarse_weights:
        return ""
    moved = _percent(fmean(step.moved or 0 for step in steps))
    return (
        f"only {moved} of the parameters move per step: {run.precision} weights are updated without float32 "
        f"copies, and at learning rate {steps[-1].learning_rate:g} most updates are smaller than half a "
        "representable step; use DeepSpeed (it keeps float32 copies), --torch_dtype float32, or LoRA"
    )


def _why_still(steps: Steps, run: RunFacts) -> str:
    last = steps[-1]
    if run.learning_rate == 0:
        return "the learning rate is 0: give another --learning_rate"
    if all(step.learning_rate == 0 for step in steps):
        return "the learning rate was 0; with any warmup so it is at step 1: more steps, or --warmup_ratio 0"
    if all(step.skipped for step in steps):
        return _why_skipped(steps, run)
    if all(map(_has_no_advantage, steps)):
        return _why_no_advantage(steps, run)
    if all(step.tokens == 0 for step in steps):
        return (
            "no completion token is left in the loss: every completion is cut off, empty or unscored (see "
            "--overlong_filter and --max_completion_length)"
        )
    if all(step.grad_norm == 0 for step in steps):
        return "advantages differ but the gradient is 0: the trained modules do not take part in the forward"
    rate = f"learning rate {_figure(last.learning_rate)}"
    if run.coarse_weights:
        return (
            f"at {rate} every update is smaller than half a representable step of {run.precision}, and "
            "float32 copies are not kept: use DeepSpeed, --torch_dtype float32, or LoRA"
        )
    return (
        f"grad_norm is {_figure(last.grad_norm)} and the {rate}, so the optimizer does not hold these "
        "parameters, or it drops its update"
    )


def _why_skipped(steps: Steps, run: RunFacts) -> str:
    last = steps[-1]
    if run.temperature == 0:
        return "logits are divided by a temperature of 0: --temperature 1, or 0.1 for nearly greedy sampling"
    if last.grad_norm is None or math.isfinite(last.grad_norm):
        return "the optimizer or its loss scaler skipped the step"
    return "grad_norm is not finite, and ms-swift drops such updates silently"


def _why_no_advantage(steps: Steps, run: RunFacts) -> str:
    last = steps[-1].rollout
    if run.num_generations == 1:
        return "a group of one completion has nothing to be compared with (--num_generations 1)"
    if last.coverage == 0:
        return (
            "no two completions of a group were scored by the same rewards, so none can be compared: a "
            "reward that is for a row scores all of its completions (docs: rewards, None)"
        )
    if all(step.rollout.identical == 1 for step in steps):
        return f"in every group {_identical_completions(run)}"
    constant = _joined(*map(_constant, last.rewards))
    deeper = [
        rule.words(steps, run)
        for rule in _RULES
        if rule.id in ("cut-off", "unread") and all(map(rule.holds, steps))
    ]
    return _joined("every reward in every group is equal", *deeper[:1], constant, last.example)


def _identical_completions(run: RunFacts) -> str:
    return (
        f"all completions are the same text (temperature {run.temperature:g}): raise --temperature, --top_p "
        "or --top_k, or the policy has collapsed"
    )


def _constant(reward: RewardFacts) -> str:
    if reward.commonest is None or reward.commonest_share < MOST:
        return ""
    return f"reward {reward.name} returned {reward.commonest:g} for {_percent(reward.commonest_share)}"


def _hardly_scored(step: StepFacts) -> set[str]:
    return {reward.name for reward in step.rollout.rewards if reward.scored <= MOST}


def _most_unread(step: StepFacts) -> RewardFacts:
    return max(step.rollout.rewards, key=lambda reward: reward.unread, default=RewardFacts("", 0))


def _same_share(step: StepFacts) -> float:
    return max(step.rollout.zero_variance or 0, step.rollout.identical or 0)


def _many_groups(steps: Steps) -> bool:
    return sum(step.rollout.groups for step in steps) >= FEW_GROUPS


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _number(steps: Steps) -> str:
    return f"{len(steps)} step{'s' if len(steps) > 1 else ''}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
