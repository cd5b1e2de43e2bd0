"""Do rollout engine and trainer agree? How far apart their log-probs are, and what the likely cause is.

``d`` is the difference, in nats, of the log-probs of a sampled token. What matters for learning is the mean
of ``exp|d|``: the factor by which an importance ratio is off. NeMo-RL gates its recipes by hand at 1.05.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Any

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.trainer.engine.turns import EARLY
from swift_grpo_ext.watch.records import (
    NUMERICS,
    PIXELS,
    POSITIONS,
    PROMPT,
    SAMPLING,
    WEIGHTS,
    EngineRecord,
)

RAW = "raw"
UNFILTERED = "unfiltered"
NO_ADAPTERS = "without adapters"
REFERENCE = "reference"
TOWER = "reference's vision tower"
OTHER_POSITIONS: Mapping[str, Sequence[int]] = {
    "drops the rows of height and width (another version of it)": (0, 0, 0),
    "drops the row of height": (0, 0, 2),
    "drops the row of width": (0, 1, 0),
    "swaps the rows of height and width": (0, 2, 1),
    "counts through images as through text (another model class, or --hf_overrides)": (),
}
"""Such a hypothesis has the words of its cause; which rows of time, height and width are in their places."""
CHANNELS = "channels swapped"
NORMS = "videos normalised as images"
FILTERS = "filter"  # such a hypothesis has the filter's name: ``filter nearest``
SETTINGS = ("temperature", "top_p", "top_k")  # such a hypothesis has its value: ``temperature 0.3``

FULL_PRECISION = 1.002
HALF_PRECISION = 1.05
"""Largest mean of exp|d| of a healthy engine: two kernels in fp32 differ by 1e-5 to 1e-3 nats a token, in
bf16 by 0.01 to 0.03, which grows over long completions."""
_UNCLEAR = 3.0
"""Up to so many times a healthy engine's excess over 1, kernels or quantised weights may be all it is."""
_GROWN = 4.0  # ... or so many times what it was when it agreed: kernels do not come to differ all at once.
_BETTER = 0.25  # another hypothesis must explain all but this share of the distance
_RESTART = "restart server and run, and look at the server's log for the sync"
_KEEPS = f"keeps features of images over it ({DEFECTS['F32'].reports[0]}); {DEFECTS['F32'].fix}"
_KEPT = f"; or it {_KEEPS}"
_MOSTLY = 0.5
_WORST = 3  # turns that a report lists
_LARGEST = 20.0  # nats: exp of more says no more
_NO_LAG = 10  # steps after which rollouts one step behind are no reason for the weights of the beginning


@dataclass(frozen=True)
class Distance:
    """Sums over tokens of 1, |d| in nats and exp|d|, and the largest |d|; those of several ranks add up."""

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

    def __add__(self, other: "Distance") -> "Distance":
        sums = (self.tokens + other.tokens, self.absolute + other.absolute, self.ratio + other.ratio)
        return Distance(*sums, max(self.largest, other.largest))


def total(distances: Iterable[Distance]) -> Distance:
    """The distance over all tokens of several."""
    return sum(distances, Distance())


def distance(engine: Sequence[float], trainer: Sequence[float]) -> Distance:
    """How far two lists of log-probs of the same tokens are apart; one not finite counts as 20 nats."""
    gaps = [abs(claimed - computed) for claimed, computed in zip(engine, trainer, strict=True)]
    gaps = [min(gap, _LARGEST) if math.isfinite(gap) else _LARGEST for gap in gaps]
    return Distance(len(gaps), math.fsum(gaps), math.fsum(map(math.exp, gaps)), max(gaps, default=0.0))


@dataclass(frozen=True)
class TurnFigures:
    """How far apart engine and trainer are in one turn of a completion."""

    row: str  # its name, with its image
    turn: int  # counted from 1
    tokens: int  # that were sampled in it
    images: str  # sizes of the images so far, in pixels: ``448 x 336``; empty if not known
    distance: Distance
    worst: str  # the token that differs most, in words
    image: str = ""  # path of the newest image that the turn saw; empty without one

    def __str__(self) -> str:
        images = f", image {self.images}" if self.images else ""
        return (
            f"{self.row}, turn {self.turn}, {self.tokens} tokens{images}: mean |d| {self.distance.mean:.2g} "
            f"nats, most at {self.worst}"
        )

    def facts(self) -> dict[str, object]:
        """The same as JSON, for the report."""
        gap = self.distance
        words = {name: value for name, value in vars(self).items() if name != "distance"}
        return words | {"compared": gap.tokens, "mean": gap.mean, "ratio": gap.mean_ratio}


def begin_and_rest(
    engine: Sequence[Sequence[float]], trainer: Sequence[Sequence[float]]
) -> tuple[Distance, Distance]:
    """How far log-probs of turns are apart: of the first `EARLY` tokens of each, and of the others."""
    pairs = list(zip(engine, trainer, strict=True))
    begin = total(distance(claimed[:EARLY], computed[:EARLY]) for claimed, computed in pairs)
    return begin, total(distance(claimed[EARLY:], computed[EARLY:]) for claimed, computed in pairs)


@dataclass(frozen=True)
class Agreement:
    """One check of an engine, over all ranks or those that are apart.

    Hypotheses (`RAW` ..., or one of `SETTINGS`) are distances to what the trainer would compute under them.
    """

    step: int  # optimizer steps taken before it
    begin: Distance = Distance()  # over the first `EARLY` tokens of each turn
    rest: Distance = Distance()  # over the others
    apart: Distance = Distance()  # over the turns that are too far apart; those alone are explained
    hypotheses: Mapping[str, Distance] = field(default_factory=dict)
    engine_logp: float = 0.0  # mean log-prob of a token
    trainer_logp: float = 0.0
    garbage: float = 0.0  # share of completions that are noise: repeats, unknown tokens, all cut off
    prompt: str = ""  # how the prompts differ, in words
    history: str = ""  # which turns were sampled from another history than is trained on, in words
    first_gap: str = ""  # where the first large difference is, in words
    turns: tuple[TurnFigures, ...] = ()  # that were compared, the most different first
    ranks: str = ""  # which ranks these are, in words; empty for all

    @property
    def all(self) -> Distance:
        """Over all tokens."""
        return self.begin + self.rest


def over_ranks(checks: Sequence[Agreement]) -> Agreement:
    """One check of several ranks, each with its own completions; words are the first that a rank has."""
    tokens = total(check.all for check in checks).tokens or 1.0
    words: dict[str, Any] = {
        name: next(filter(None, map(attrgetter(name), checks)), "")
        for name in ("prompt", "history", "first_gap")
    }
    means: dict[str, Any] = {
        name: sum(getattr(check, name) * check.all.tokens for check in checks) / tokens
        for name in ("engine_logp", "trainer_logp")
    }
    turns = chain.from_iterable(check.turns for check in checks)
    return replace(
        checks[0],
        begin=total(check.begin for check in checks),
        rest=total(check.rest for check in checks),
        apart=total(check.apart for check in checks),
        turns=tuple(sorted(turns, key=attrgetter("distance.mean"), reverse=True)),
        **words,
        **means,
    )


@dataclass(frozen=True)
class EngineFacts:
    """What is fixed about a run's engine."""

    name: str
    half: bool = False  # weights or forwards in bf16 or fp16
    trains_tower: bool = False  # the vision tower, so that features of images go stale
    lags: bool = False  # rollouts are one step behind on purpose (--async_generate), but for the first
    configured: Mapping[str, float] = field(default_factory=dict)  # `SETTINGS` of the trainer

    @property
    def limit(self) -> float:
        """Largest mean of exp|d| that is no fault."""
        return HALF_PRECISION if self.half else FULL_PRECISION

    def agrees(self, check: Agreement) -> bool:
        """The check compared log-probs and found no fault."""
        return bool(check.all.tokens) and check.all.mean_ratio <= self.limit


def judge(now: Agreement, before: Sequence[Agreement], engine: EngineFacts) -> EngineRecord:
    """What a check shows after earlier ones, and what is wrong between engine and trainer: cause and cure."""
    gap = now.all
    name = f"{engine.name}{now.ranks}"
    figures = EngineRecord()
    if gap.tokens:
        worst = "; ".join(map(str, now.turns[:_WORST]))
        turns = tuple(turn.facts() for turn in now.turns)
        figures = EngineRecord(gap.mean_ratio, gap.mean, gap.largest, worst=worst, turns=turns)
    if now.prompt:
        return replace(figures, rule=PROMPT, text=f"{name} got another prompt than the trainer: {now.prompt}")
    rule = cause = hypothesis = ""
    if gap.mean_ratio > engine.limit:
        hypothesis = _likeliest(now)
        rule, cause = _explained(hypothesis, engine) if hypothesis else _unexplained(now, before, engine)
        lags = engine.lags and bool(before)
        if lags and hypothesis in (NO_ADAPTERS, REFERENCE):
            lags = now.step - before[0].step < _NO_LAG
        if lags and rule != SAMPLING:
            rule = ""  # other weights are what was asked for
    if not rule:
        return replace(figures, note=_joined(_noise(now, disagree=False), now.history))
    size = f"mean |d| {gap.mean:.2g} nats, mean exp|d| {gap.mean_ratio:.3g}"
    where = now.first_gap or next((f"most in {turn}" for turn in now.turns), "")
    noise = "" if hypothesis or rule == PIXELS else _noise(now, disagree=True)
    words = _joined(cause, noise, where)
    text = f"{name} and trainer disagree on sampled tokens ({size}): {words}"
    return replace(figures, rule=rule, text=text)


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _likeliest(now: Agreement) -> str:
    """The hypothesis that explains nearly all of the distance; empty if none does."""
    best = min(now.hypotheses, key=lambda name: now.hypotheses[name].mean, default="")
    gap = now.apart if now.apart.tokens else now.all
    return best if best and now.hypotheses[best].mean <= _BETTER * gap.mean else ""


def _unexplained(now: Agreement, before: Sequence[Agreement], engine: EngineFacts) -> tuple[str, str]:
    """Rule and cause where no hypothesis explains the distance: by where it begins, and since when."""
    usual = (
        "(usual: 0.01 to 0.03 in bf16, below 0.001 in fp32); --rollout_importance_sampling_mode "
        "token_truncate corrects for it"
    )
    if now.rest.tokens and now.begin.mean_ratio <= engine.limit:
        return NUMERICS, (
            f"they agree on the first {EARLY} tokens ({now.begin.mean:.2g}) and drift apart later "
            f"({now.rest.mean:.2g}): numerics of two kernels {usual}"
        )
    agreed = [check for check in before if engine.agrees(check)]
    usually = max((check.all.mean_ratio for check in agreed), default=engine.limit) - 1
    if now.all.mean_ratio - 1 <= min(_UNCLEAR * (engine.limit - 1), _GROWN * usually):
        return NUMERICS, (
            "from the first token on, by more than two kernels usually do and less than other weights would "
            f"{usual}; quantised weights, or another type (--torch_dtype) on the server, look like this too"
        )
    if found := _of_later_turns(now.turns, engine.limit):
        return found
    if agreed:
        return WEIGHTS, (
            f"they agreed at step {agreed[-1].step}, so the engine's weights are stale: the weight sync does "
            f"not reach it, or the server has been restarted; {_RESTART}{_KEPT * engine.trains_tower}"
        )
    return WEIGHTS, (
        "the prompts are equal and the first tokens already differ, so its weights are others: another "
        "checkpoint on the server, quantised weights, or another type"
    )


def _of_later_turns(turns: Sequence[TurnFigures], limit: float) -> tuple[str, str] | None:
    """Rule and cause where the turns before the first that is apart agree; None where there is none."""
    apart = [turn for turn in turns if turn.distance.mean_ratio > limit]
    first = min(apart, key=attrgetter("turn"), default=None)
    before = [turn for turn in turns if first and turn.row == first.row and turn.turn < first.turn]
    if not first or not before:
        return None
    agree = f"the turns before turn {first.turn} agree"
    if max(len(turn.images) for turn in before) < len(first.images):
        return PIXELS, (
            f"{agree}, so the weights are the same; the image that it added is another one in the engine "
            "(another crop, another order of images, or drawn otherwise)"
        )
    return WEIGHTS, (
        f"{agree}: from there on the engine has other weights (a sync or a restart in the middle of a "
        "trajectory), or other settings"
    )


_M_ROPE = "the positions of images differ (M-RoPE), pixels and weights do not: the engine"
_PIXELS = "the pixels of images differ, positions and weights do not: they"
_CAUSES = {
    RAW: (
        SAMPLING,
        "it reports log-probs before temperature and filters (logprobs_mode raw_logprobs, or speculative "
        "decoding): vLLM 0.10.2 or newer reports those of what it samples from; with these, importance "
        "sampling is unsound",
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
        "it is the model that training started from: no weight sync has reached the engine, or the server "
        f"has been restarted; {_RESTART}",
    ),
    **{name: (POSITIONS, f"{_M_ROPE} {name}, so boxes and points are off") for name in OTHER_POSITIONS},
    CHANNELS: (
        PIXELS,
        f"{_PIXELS} are in another order of colours there: red and blue are swapped (BGR)",
    ),
    NORMS: (
        PIXELS,
        "the pixels of videos differ, positions and weights do not: they are normalised with mean and "
        "deviation of the image processor there (vLLM 0.32 does so on the device), here with those of the "
        """video processor: --vllm_engine_kwargs '{"mm_device_do_normalize": false}', or """
        "the same values for both in the checkpoint",
    ),
    TOWER: (
        WEIGHTS,
        "its images are those of the vision tower that training started from: the sync leaves the tower out, "
        f"or the engine {_KEEPS}",
    ),
}


def _explained(hypothesis: str, engine: EngineFacts) -> tuple[str, str]:
    if hypothesis in _CAUSES:
        return _CAUSES[hypothesis]
    setting, value = hypothesis.split()
    if setting == FILTERS:
        return PIXELS, (
            f"{_PIXELS} are resized with another filter there: {value}, which is not the trainer's "
            "(another image processor: use_fast, or resample in preprocessor_config.json)"
        )
    raw = ", or reports log-probs before temperature (raw_logprobs)" if hypothesis == "temperature 1" else ""
    of_trainer = f"{engine.configured[setting]:g}" if setting in engine.configured else "another"
    return SAMPLING, f"it samples at {setting} {value}{raw}, the trainer at {of_trainer}: --{setting}"


def _noise(now: Agreement, disagree: bool) -> str:
    """That the rollouts of a first step are noise, and whose fault; empty if they are not."""
    if now.step or now.garbage < _MOSTLY:
        return ""
    share = f"{now.garbage:.0%} of the completions are loops, unknown characters or nothing"
    if not now.all.tokens:
        return share
    whose = "engine and trainer agree, so it is the checkpoint or the chat template"
    if disagree:
        whose = "they disagree, so the engine may not support this model family"
    logps = f"engine {now.engine_logp:.2f}, trainer {now.trainer_logp:.2f}"
    return f"{share} (mean log-prob of a token: {logps}): {whose}"
