"""From the facts of the last steps to what is wrong and why: one rule after the other, with what it says.

Loss, KL and movement by themselves prove little (weight decay moves parameters without any gradient). So
"dead" means that no parameter moved, or that no completion had an advantage; all else is a warning.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, takewhile
from statistics import fmean

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.findings import Finding, Problem, Rule, Severity
from swift_grpo_ext.watch import causes, records
from swift_grpo_ext.watch.records import RunFacts, StepFacts

Steps = Sequence[StepFacts]
Holds = Callable[[StepFacts, RunFacts], bool]
Tell = Callable[[Steps, RunFacts], str]
GROWTH_STEPS = 60  # in each ten of which memory must have grown
GROWTH_GIB = 0.5
FEW_GROUPS = 8  # so many groups without an advantage may be chance: small batches must wait for more steps


Window = tuple[Steps, RunFacts, int]  # in order, and how many steps a fault must last
RULES: list[Rule[Window]] = []  # of the errors the first is the verdict; of the warnings all are reported


def findings(history: Steps, run: RunFacts, patience: int) -> list[Finding]:
    """What the rules find in the steps so far, errors first: with one of them nothing can be learned."""
    return [finding for rule in RULES for finding in rule.findings((history, run, patience))]


def _rule(id: str, severity: Severity, patience: int, holds: Holds) -> Callable[[Tell], Tell]:
    """Decorator: a fault that lasts so many patiences (0: one step proves it), and what it means; or ""."""

    def add(tell: Tell) -> Tell:
        def look(window: Window) -> Iterator[Problem]:
            history, run, needed = window
            streak = list(takewhile(lambda step: holds(step, run), reversed(history)))[::-1]
            lasts = len(streak) >= max(1, patience * needed)
            if lasts and (text := tell(streak, run)):
                yield Problem(text, steps=len(streak))

        RULES.append(Rule(id, severity, look))
        return tell

    return add


def _is_still(step: StepFacts, _run: RunFacts) -> bool:
    return step.moved == 0 and not step.master_moved


def _has_no_advantage(step: StepFacts, _run: RunFacts) -> bool:
    return step.rollout.advantaged == 0


@_rule("parameters-still", Severity.ERROR, 1, _is_still)
def _still(steps: Steps, run: RunFacts) -> str:
    if _has_no_advantage(steps[-1], run) and not _many_groups(steps):
        return ""
    return f"parameters did not move for {_number(steps)}: {causes.why_still(steps, run)}"


@_rule("all-skipped", Severity.ERROR, 1, lambda step, run: step.skipped)
def _all_skipped(steps: Steps, run: RunFacts) -> str:
    if _is_still(steps[-1], run):
        return ""
    return f"every update was dropped for {_number(steps)}: {causes.why_skipped(steps, run)}"


@_rule("no-advantage", Severity.ERROR, 1, _has_no_advantage)
def _no_advantage(steps: Steps, run: RunFacts) -> str:
    if _is_still(steps[-1], run) or not _many_groups(steps):
        return ""
    movers = "KL, weight decay and momentum" if run.beta else "weight decay and momentum"
    reason = causes.why_no_advantage(steps, run)
    return f"no completion had an advantage for {_number(steps)}, only {movers} move the parameters: {reason}"


def _disagrees(steps: Steps, _run: RunFacts) -> str:
    return steps[-1].engine.text


def _is_faulty(rule: str) -> Holds:
    return lambda step, _run: step.engine.rule == rule


for _fault in (records.PROMPT, records.WEIGHTS, records.POSITIONS, records.PIXELS, records.SAMPLING):
    _rule(_fault, Severity.ERROR, 0, _is_faulty(_fault))(_disagrees)
_rule(records.NUMERICS, Severity.WARNING, 0, _is_faulty(records.NUMERICS))(_disagrees)


@_rule("lost-micro-batches", Severity.WARNING, 1, lambda step, run: causes.loses_micro_batches(run))
def _lost(_steps: Steps, run: RunFacts) -> str:
    return (
        f"DeepSpeed {run.deepspeed} with ZeRO-2 and the optimizer on the CPU keeps the gradients of the "
        f"first and the last micro-batch only, {run.accumulation - 2} of {run.accumulation} are thrown away "
        f"({DEFECTS['B1'].reports[0]}): {DEFECTS['B1'].fix}"
    )


@_rule(
    "infinite-rewards", Severity.WARNING, 0, lambda step, run: any(r.infinite for r in step.rollout.rewards)
)
def _infinite(steps: Steps, _run: RunFacts) -> str:
    reward = max(steps[-1].rollout.rewards, key=lambda reward: reward.infinite)
    return (
        f"reward {reward.name} gave {reward.infinite} of the completions an infinite value; they count as "
        "not scored; clamp its output"
    )


@_rule("memory-grows", Severity.WARNING, 0, lambda step, run: step.resident is not None)
def _memory_grows(steps: Steps, _run: RunFacts) -> str:
    known = [step.resident or 0.0 for step in steps][-GROWTH_STEPS:]
    tens = [min(known[start : start + 10]) for start in range(0, len(known), 10)]  # lulls between peaks
    grown = tens[-1] - tens[0]
    rises = all(later > earlier for earlier, later in pairwise(tens))
    if len(known) < GROWTH_STEPS or not rises or grown < max(GROWTH_GIB, 0.05 * tens[0]):
        return ""
    holder = steps[-1].holder or "nothing that is counted"
    return (
        f"the first rank's main memory grew by {grown:.1f} GiB to {known[-1]:.1f} GiB over {GROWTH_STEPS} "
        f"steps, in each ten of them; the largest known holder is {holder}; a run that goes on like this is "
        "killed when memory is used up: "
        "--dataloader_num_workers 0 shows whether it is a worker or a reward of yours"
    )


def _moves_coarsely(step: StepFacts, run: RunFacts) -> bool:
    return run.coarse_weights and bool(step.learning_rate) and 0 < (step.moved or 0) < 0.1


@_rule("coarse-weights", Severity.WARNING, 1, _moves_coarsely)
def _coarse(steps: Steps, run: RunFacts) -> str:
    return (
        f"only {_percent(*(step.moved for step in steps))} of the parameters move per step: "
        f"{run.precision} weights are updated without float32 copies, and at learning rate "
        f"{steps[-1].learning_rate:g} most updates are smaller than half a representable step; use DeepSpeed "
        "(it keeps float32 copies), --torch_dtype float32, or LoRA"
    )


@_rule("unscored", Severity.WARNING, 1, lambda step, run: any(r.scored <= 0.9 for r in step.rollout.rewards))
def _unscored(steps: Steps, _run: RunFacts) -> str:
    reward = min(steps[-1].rollout.rewards, key=lambda reward: reward.scored)
    return (
        f"reward {reward.name} scored only {_percent(reward.scored)} of the completions; the others take no "
        "part in the update. None or NaN means that it could not: look for a missing column or an answer "
        "format"
    )


@_rule("some-skipped", Severity.WARNING, 3, lambda step, run: True)
def _some_skipped(steps: Steps, run: RunFacts) -> str:
    """A fifth of the last updates or more, but not all."""
    recent = steps[-20:]
    dropped = [step for step in recent if step.skipped]
    if len(dropped) == len(recent) or len(dropped) < math.ceil(len(recent) / 5):
        return ""
    why = causes.why_skipped(dropped, run)
    return f"{len(dropped)} of the last {len(recent)} updates were dropped: {why}"


@_rule("few-varying-groups", Severity.WARNING, 5, lambda step, run: (step.rollout.zero_variance or 0) >= 0.9)
def _few_varying(steps: Steps, run: RunFacts) -> str:
    if all(_has_no_advantage(step, run) for step in steps):
        return ""
    return (
        f"in {_percent(*(step.rollout.zero_variance for step in steps))} of the groups every completion "
        "got the same reward, so they teach nothing: prompts are too easy or too hard, or the reward is too "
        "coarse (see --dynamic_sample)"
    )


@_rule("identical", Severity.WARNING, 3, lambda step, run: (step.rollout.identical or 0) >= 0.9)
def _identical(steps: Steps, run: RunFacts) -> str:
    if all(_has_no_advantage(step, run) for step in steps):
        return ""
    share = _percent(*(step.rollout.identical for step in steps))
    return f"in {share} of the groups {causes.identical_completions(run)}"


@_rule("clipped", Severity.WARNING, 3, lambda step, run: (step.rollout.clipped or 0) >= 0.9)
def _clipped(steps: Steps, _run: RunFacts) -> str:
    return (
        f"{_percent(*(step.rollout.clipped for step in steps))} of the completions are cut off at the "
        "length limit: raise --max_completion_length, or the model never ends its answer"
    )


@_rule("empty", Severity.WARNING, 3, lambda step, run: (step.rollout.empty or 0) >= 0.5)
def _empty(steps: Steps, _run: RunFacts) -> str:
    return f"{_percent(*(step.rollout.empty for step in steps))} of the completions are empty"


def _many_groups(steps: Steps) -> bool:
    return sum(step.rollout.groups for step in steps) >= FEW_GROUPS


def _number(steps: Steps) -> str:
    return f"{len(steps)} step{'s' if len(steps) > 1 else ''}"


def _percent(*shares: float | None) -> str:
    """Of their mean, where none is unknown."""
    return f"{100 * fmean(share or 0 for share in shares):.3g} %"
