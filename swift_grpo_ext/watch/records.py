"""What the learning monitor knows of one optimizer step, and of the run: plain data, JSON in and out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class RewardFacts:
    """One reward function over one generation batch of all ranks.

    Attributes:
        scored: Share of completions that it scored, 0 to 1.
        commonest, commonest_share: The value that scored completions got most often, to six places.
        infinite: Completions for which it gave an infinity.
    """

    name: str
    scored: float
    commonest: float | None = None
    commonest_share: float = 0.0
    infinite: int = 0


@dataclass(frozen=True)
class RolloutFacts:
    """One generation batch of all ranks. Shares lie between 0 and 1; None where nothing could be observed.

    Attributes:
        reward_std: Mean deviation within groups.
        advantaged: Share of completions whose advantage is not 0.
        zero_variance, identical: Share of groups whose rewards are all equal, or whose texts all are.
        clipped: Share of completions that ran into the length limit.
        empty: Share of completions without a visible character.
        example: One completion in words, for messages: its row, what was predicted and what was expected.
    """

    groups: int = 0
    rewards: tuple[RewardFacts, ...] = ()
    reward_std: float | None = None
    advantaged: float | None = None
    zero_variance: float | None = None
    identical: float | None = None
    clipped: float | None = None
    empty: float | None = None
    example: str = ""


@dataclass(frozen=True)
class EngineRecord:
    """The newest comparison of rollout engine and trainer.

    Attributes:
        ratio: Mean of exp|d| over sampled tokens, d the difference of their log-probs; None if not compared.
        mean, largest: Of |d|, nats.
        rule, text: Id of the fault, and the fault with its cause; empty if there is none.
        note: What is worth knowing and may be meant so.
    """

    ratio: float | None = None
    mean: float | None = None
    largest: float | None = None
    rule: str = ""
    text: str = ""
    note: str = ""


@dataclass(frozen=True)
class StepFacts:
    """One optimizer step.

    Attributes:
        step: Global step, counted from 1.
        learning_rate: The one that this step's update used.
        grad_norm: Before clipping; None where ms-swift does not tell.
        skipped: The update was dropped: by ms-swift for a NaN, by the scaler or by DeepSpeed.
        moved: Share of sampled trainable elements whose value changed.
        ulps: By how many representable steps those that moved did, geometric mean.
        master_moved: `moved` of the optimizer's float32 copies; None where there are none.
        tokens: Completion tokens in the loss, all ranks.
        entropy: Nats per token at the sampling temperature.
        kl: Nats per token between the policy and where it started from.
        rollout, engine: What the step was taken on, and the last check of the engine that made it.
    """

    step: int
    learning_rate: float | None = None
    grad_norm: float | None = None
    skipped: bool = False
    moved: float | None = None
    ulps: float | None = None
    master_moved: float | None = None
    tokens: int | None = None
    entropy: float | None = None
    kl: float | None = None
    rollout: RolloutFacts = RolloutFacts()
    engine: EngineRecord = EngineRecord()


@dataclass(frozen=True)
class RunFacts:
    """What does not change during a run; `precision` is of the trainable parameters.

    Attributes:
        accumulation: Micro-batches per optimizer step.
        max_steps: Optimizer steps of the whole run.
        learning_rate: As asked for, the peak of its schedule; None if unknown.
        trainable: Number of trainable parameters.
        masters: The optimizer keeps float32 copies of them.
        zero_stage: DeepSpeed's stage; None without DeepSpeed.
        healed: Ids of the patches of ``compat`` that are applied.
    """

    num_generations: int = 0
    beta: float = 0.0
    temperature: float = 1.0
    accumulation: int = 1
    max_steps: int = 0
    learning_rate: float | None = None
    trainable: int = 0
    precision: str = "float32"
    masters: bool = False
    zero_stage: int | None = None
    offload_optimizer: bool = False
    deepspeed: str = ""
    healed: tuple[str, ...] = ()

    @property
    def coarse_weights(self) -> bool:
        """The weights themselves are updated in 16 bits."""
        return self.precision in ("bfloat16", "float16") and not self.masters


def reward_facts(name: str, scores: Sequence[float | None]) -> RewardFacts:
    """Facts of one function's scores of a batch; None, NaN and infinities count as not scored."""
    valid = [score for score in scores if score is not None and math.isfinite(score)]
    if not valid:
        return RewardFacts(name, scored=0.0)
    value, count = Counter(round(score, 6) + 0.0 for score in valid).most_common(1)[0]
    return RewardFacts(name, len(valid) / len(scores), value, commonest_share=count / len(valid))


def with_infinite(rollout: RolloutFacts, counts: Sequence[float]) -> RolloutFacts:
    """The rollout with the number of infinite scores of each reward function."""
    pairs = zip(rollout.rewards, counts, strict=False)
    return replace(rollout, rewards=tuple(replace(reward, infinite=round(count)) for reward, count in pairs))


def identical_share(completions: Sequence[str], group_size: int) -> float | None:
    """Share of groups (neighbours of that number) in which every completion is the same text."""
    if group_size < 2 or len(completions) < group_size:
        return None
    starts = range(0, len(completions) - group_size + 1, group_size)
    same = [len(set(completions[start : start + group_size])) == 1 for start in starts]
    return sum(same) / len(same)


def empty_share(completions: Sequence[str]) -> float | None:
    """Share of completions without a visible character."""
    return sum(not text.strip() for text in completions) / len(completions) if completions else None


def as_json(facts: StepFacts) -> dict[str, object]:
    """A step as JSON data; figures that are not finite become None."""
    return {name: _plain(value) for name, value in asdict(facts).items()}


def step_from_json(data: Mapping[str, Any]) -> StepFacts:
    """The step that `as_json` wrote; unknown names are passed over, missing ones take their defaults."""
    rollout = data.get("rollout") or {}
    rewards = tuple(RewardFacts(**_known(RewardFacts, row)) for row in rollout.get("rewards", ()))
    known = _known(RolloutFacts, rollout) | {"rewards": rewards}
    engine = EngineRecord(**_known(EngineRecord, data.get("engine") or {}))
    return StepFacts(**_known(StepFacts, data) | {"rollout": RolloutFacts(**known), "engine": engine})


def _known(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: data[field.name] for field in fields(kind) if field.name in data}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
