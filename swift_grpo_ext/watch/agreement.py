"""Do rollout engine and trainer agree? How far apart their log-probs are, and what the likely cause is.

The engine reports log-probs of the tokens that it sampled; the trainer computes those of the same tokens by
teacher forcing. ``d`` is their difference in nats. The figure that matters for learning is the mean of
``exp|d|``: the factor by which an importance ratio is off. NeMo-RL gates its recipes by hand at 1.05.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from swift_grpo_ext.watch.records import EngineRecord

AS_CONFIGURED = "as configured"
RAW = "raw"
NO_ADAPTERS = "without adapters"
REFERENCE = "reference"
TEMPERATURE = "temperature "
UNFILTERED = "unfiltered"

PROMPT, WEIGHTS, SAMPLING = "engine-prompt", "engine-weights", "engine-sampling"
NUMERICS = "engine-numerics"

FULL_PRECISION, HALF_PRECISION = 1.002, 1.05
"""Largest mean of exp|d| of a healthy engine: two kernels in fp32 differ by 1e-5 to 1e-3 nats a token, in
bf16 by 0.01 to 0.03, which grows over long completions."""
_BETTER = 0.25
"""Another hypothesis must explain all but this share of the distance."""
_MOSTLY = 0.5
_LARGEST = 20.0
"""Nats: exp of more says no more."""
EARLY = 8
"""Tokens of a completion that count as its beginning."""


@dataclass(frozen=True)
class Distance:
    """Sums over tokens; those of several ranks add up.

    Attributes:
        tokens: Number of them.
        absolute: Sum of |d|, nats.
        ratio: Sum of exp|d|.
        largest: Largest |d|.
    """

    tokens: float = 0.0
    absolute: float = 0.0
    ratio: float = 0.0
    largest: float = 0.0

    @property
    def mean(self) -> float:
        """Mean |d| in nats; 0 of no token."""
        return self.absolute / self.tokens if self.tokens else 0.0

    @property
    def mean_ratio(self) -> float:
        """Mean of exp|d|, at least 1; 1 of no token."""
        return self.ratio / self.tokens if self.tokens else 1.0

    def __add__(self, other: Distance) -> Distance:
        return Distance(
            self.tokens + other.tokens,
            self.absolute + other.absolute,
            self.ratio + other.ratio,
            max(self.largest, other.largest),
        )


def distance(engine: Sequence[float], trainer: Sequence[float]) -> Distance:
    """How far two lists of log-probs of the same tokens are apart; one not finite counts as 20 nats."""
    gaps = [abs(one - other) for one, other in zip(engine, trainer, strict=True)]
    gaps = [min(gap, _LARGEST) if math.isfinite(gap) else _LARGEST for gap in gaps]
    return Distance(len(gaps), math.fsum(gaps), math.fsum(map(math.exp, gaps)), max(gaps, default=0.0))


@dataclass(frozen=True)
class Agreement:
    """One check of an engine, over all ranks.

    Attributes:
        step: Optimizer steps taken before it.
        completions: Looked at.
        begin: Distance over the first `EARLY` tokens of each.
        rest: Distance over the others.
        hypotheses: Distances, over all tokens, to what the trainer would compute were the engine set
            otherwise: `RAW`, `UNFILTERED`, `NO_ADAPTERS`, `REFERENCE`, ``temperature T``.
        engine_logp, trainer_logp: Mean log-prob of a token.
        garbage: Share of completions that are noise: repeats, unknown tokens, all cut off.
        prompt: How the prompts differ, in words; empty if they do not.
        parted: Where the first large difference is, in words; empty if there is none.
    """

    step: int
    completions: int = 0
    begin: Distance = Distance()
    rest: Distance = Distance()
    hypotheses: Mapping[str, Distance] = field(default_factory=dict)
    engine_logp: float = 0.0
    trainer_logp: float = 0.0
    garbage: float | None = None
    prompt: str = ""
    parted: str = ""

    @property
    def all(self) -> Distance:
        """Over all tokens."""
        return self.begin + self.rest


@dataclass(frozen=True)
class EngineFacts:
    """What is fixed about a run's engine.

    Attributes:
        name: ``transformers``, ``vLLM colocate``, ``vLLM server``.
        half: Weights or forwards in bf16 or fp16.
        adapters: LoRA.
        lags: Rollouts are one step behind on purpose (``--async_generate``).
        temperature: As configured.
    """

    name: str
    half: bool = False
    adapters: bool = False
    lags: bool = False
    temperature: float = 1.0

    @property
    def limit(self) -> float:
        """Largest mean of exp|d| that is no fault."""
        return HALF_PRECISION if self.half else FULL_PRECISION


def judge(now: Agreement, before: Sequence[Agreement], engine: EngineFacts) -> EngineRecord:
    """What a check shows, and what is wrong between engine and trainer, with the cause and the cure.

    Args:
        now: The newest check.
        before: Earlier checks of the run, oldest first.
        engine: The engine.
    """
    figures = (
        EngineRecord(now.all.mean_ratio, now.all.mean, now.all.largest) if now.all.tokens else EngineRecord()
    )
    if now.prompt:
        text = f"{engine.name} got another prompt than the trainer: {now.prompt}"
        return replace(figures, rule=PROMPT, text=text)
    if not engine.lags and now.all.mean_ratio > engine.limit:
        rule, cause = _cause(now, before, engine)
        size = f"mean |d| {now.all.mean:.2g} nats, mean exp|d| {now.all.mean_ratio:.3g}"
        where = f"; {now.parted}" if now.parted else ""
        words = f"{cause}{_noise(now, True)}{where}"
        text = f"{engine.name} and trainer disagree on sampled tokens ({size}): {words}"
        return replace(figures, rule=rule, text=text)
    return replace(figures, note=_noise(now, False).removeprefix("; "))


def _cause(now: Agreement, before: Sequence[Agreement], engine: EngineFacts) -> tuple[str, str]:
    best = min(now.hypotheses, key=lambda name: now.hypotheses[name].mean, default="")
    if best and now.hypotheses[best].mean <= _BETTER * now.all.mean:
        return _explained(best, engine)
    if now.rest.tokens and now.begin.mean_ratio <= engine.limit:
        return NUMERICS, (
            f"they agree on the first {EARLY} tokens ({now.begin.mean:.2g}) and drift apart later "
            f"({now.rest.mean:.2g}): numerics of two kernels (usual: 0.01 to 0.03 in bf16, below 0.001 "
            "in fp32); --rollout_importance_sampling_mode token_truncate corrects for it"
        )
    agreed = [check.step for check in before if check.all.tokens and check.all.mean_ratio <= engine.limit]
    if agreed:
        return WEIGHTS, (
            f"they agreed at step {agreed[-1]}, so the engine's weights are stale: the weight sync has not "
            "reached it; restart the rollout server, and look at its log for the sync"
        )
    return WEIGHTS, (
        "the prompts are equal and the first tokens already differ, so its weights are others: another "
        "checkpoint on the server, quantised weights, or another type"
    )


def _explained(hypothesis: str, engine: EngineFacts) -> tuple[str, str]:
    if hypothesis.startswith(TEMPERATURE):
        found = hypothesis.removeprefix(TEMPERATURE)
        return (
            SAMPLING,
            f"it samples at temperature {found}, the trainer at {engine.temperature:g}: --temperature",
        )
    return {
        RAW: (
            SAMPLING,
            "it reports log-probs before temperature and filters (logprobs_mode raw_logprobs): vLLM 0.10.2 "
            "or newer reports those of what it samples from; importance sampling is unsound so",
        ),
        UNFILTERED: (
            SAMPLING,
            "it samples without the trainer's top_k, top_p and min_p: set the same on the server",
        ),
        NO_ADAPTERS: (
            WEIGHTS,
            "it is the model without LoRA: the adapters were never applied or merged there "
            "(--vllm_enable_lora true on `swift rollout`, or restart the server)",
        ),
        REFERENCE: (
            WEIGHTS,
            "it is the model that training started from: no weight sync has reached the engine; restart the "
            "rollout server, and look at its log for the sync",
        ),
    }[hypothesis]


def _noise(now: Agreement, disagree: bool) -> str:
    """That the rollouts of a first step are noise, and whose fault; empty if they are not."""
    if now.step or not now.garbage or now.garbage < _MOSTLY:
        return ""
    whose = (
        "they disagree, so the engine may not support this model family"
        if disagree
        else "engine and trainer agree, so it is the checkpoint or the chat template"
    )
    return (
        f"; {now.garbage:.0%} of the completions are loops, unknown characters or nothing (mean log-prob of "
        f"a token: engine {now.engine_logp:.2f}, trainer {now.trainer_logp:.2f}): {whose}"
    )
