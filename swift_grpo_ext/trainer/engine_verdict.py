"""How far a rollout engine is from the trainer's policy, and what to make of it.

``d`` is the difference, in nats, of the log-probs of a sampled token. What matters for learning is the mean
of ``exp|d|``: the factor by which an importance ratio is off. NeMo-RL gates its recipes by hand at 1.05.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile

from jaxtyping import Float
from torch import Tensor

from swift_grpo_ext.watch.records import NUMERICS, PROMPT, WEIGHTS, EngineRecord

EARLY = 8  # tokens of a turn that count as its beginning
FULL_PRECISION = 1.002
HALF_PRECISION = 1.05
"""Largest mean of exp|d| of a healthy engine: two kernels in fp32 differ by 1e-5 to 1e-3 nats a token, in
bf16 by 0.01 to 0.03, which grows over long completions."""
_UNCLEAR = 3.0
"""Up to this multiple of a healthy engine's excess over 1, kernels or quantised weights explain it."""
_GROWN = 4.0  # ... or this multiple of what it was when it agreed: kernels do not diverge all at once.
_ADVICE = (
    "(usual: 0.01 to 0.03 in bf16, below 0.001 in fp32); --rollout_importance_sampling_mode token_truncate "
    "corrects for it"
)
_CLEAR = 32  # tokens that a turn needs to be judged by itself
_NOISE = 0.1  # micro-batches whose largest gap is less than this share of another's are healthy beside it
_CONTEXT = 12  # tokens that are shown before a difference


@dataclass(frozen=True)
class Distance:
    """Sums over tokens of 1, |d| in nats and exp|d|, and the largest |d|; those of several ranks add up."""

    tokens: int = 0
    absolute: float = 0.0
    ratio: float = 0.0
    largest: float = 0.0

    @classmethod
    def of(cls, gaps: Float[Tensor, " tokens"]) -> "Distance":
        """The distance over tokens with these ``|d|``."""
        largest = max(gaps.tolist(), default=0.0)
        return cls(len(gaps), gaps.sum().item(), gaps.exp().sum().item(), largest)

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


@dataclass(frozen=True)
class Agreement:
    """Result of a check of an engine; those of several micro-batches and ranks add up."""

    begin: Distance = Distance()  # over the first `EARLY` tokens of each turn
    rest: Distance = Distance()  # over the others
    prompts: int = 0  # whose token ids were compared
    prompt: str = ""  # how the first that differs does, in words
    first_gap: str = ""  # where log-probs first differ, in words; of a micro-batch that is well apart
    step: int = 0  # optimizer steps taken before it

    @property
    def all(self) -> Distance:
        """Over all tokens."""
        return self.begin + self.rest

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(
            self.begin + other.begin,
            self.rest + other.rest,
            self.prompts + other.prompts,
            self.prompt or other.prompt,
            self.first_gap if self.all.largest >= _NOISE * other.all.largest else other.first_gap,
            max(self.step, other.step),
        )


def judge(
    checks: Sequence[Agreement], before: Sequence[Agreement], name: str, limit: float, lags: bool = False
) -> EngineRecord:
    """Give the figures of a check and the fault between engine and trainer, if there is one.

    Args:
        checks: Of each rank, with its own completions and maybe an engine of its own: if some are apart, they
            are judged by themselves.
        before: Earlier checks, each over all ranks.
        name: The engine's.
        limit: Largest mean of exp|d| of a healthy engine.
        lags: Rollouts are one step behind on purpose (``--async_generate``), so only prompts are judged.
    """
    compared = [rank for rank, check in enumerate(checks) if check.all.tokens]
    apart = [rank for rank in compared if checks[rank].all.mean_ratio > limit]
    now = sum((checks[rank] for rank in apart or compared), Agreement())
    gap = now.all
    record = EngineRecord(gap.mean_ratio, gap.mean, gap.largest) if compared else EngineRecord()
    if prompt := sum(checks, Agreement()).prompt:
        return replace(record, rule=PROMPT, text=f"{name} got another prompt than the trainer: {prompt}")
    if lags or not apart:
        return record
    rule, cause = _cause(now, before, limit)
    ranks = f" of rank {', '.join(map(str, apart))}" if len(apart) < len(compared) else ""
    text = (
        f"{name}{ranks} and trainer disagree on sampled tokens (mean |d| {gap.mean:.2g} nats, mean exp|d| "
        f"{gap.mean_ratio:.3g}): {cause}; {now.first_gap}"
    )
    return replace(record, rule=rule, text=text.removesuffix("; "))


def of_one_turn(turns: Mapping[int, Agreement], name: str, limit: float) -> str:
    """Say of which turn alone engine and trainer differ; empty if of none, or of several.

    It drowns in the mean over many turns, and where the others agree it is not the weights.

    Args:
        turns: By turn, over all ranks.
        name: The engine's.
        limit: Largest mean of exp|d| of a healthy engine.
    """
    gaps = {turn: part.all for turn, part in turns.items() if part.all.tokens >= _CLEAR}
    worst = max(gaps, key=lambda turn: gaps[turn].mean_ratio, default=0)
    others = sum((gap for turn, gap in gaps.items() if turn != worst), Distance())
    usual = max(limit - 1, _GROWN * (others.mean_ratio - 1))
    if not others.tokens or gaps[worst].mean_ratio - 1 <= usual:
        return ""
    gap = gaps[worst]
    return (
        f"{name} and trainer disagree on turn {worst} alone (mean |d| {gap.mean:.2g} nats, mean exp|d| "
        f"{gap.mean_ratio:.3g}): the other turns agree, so the engine saw another question or image "
        f"there, or sampled at other settings; {turns[worst].first_gap}"
    )


def _cause(now: Agreement, before: Sequence[Agreement], limit: float) -> tuple[str, str]:
    """Rule and cause of a distance: by where it begins, and since when."""
    if now.rest.tokens and now.begin.mean_ratio <= limit:
        return NUMERICS, (
            f"they agree on the first {EARLY} tokens ({now.begin.mean:.2g}) and drift apart later "
            f"({now.rest.mean:.2g}): numerics of two kernels {_ADVICE}"
        )
    agreed = [check for check in before if check.all.tokens and check.all.mean_ratio <= limit]
    usually = max((check.all.mean_ratio for check in agreed), default=limit) - 1
    if now.all.mean_ratio - 1 <= min(_UNCLEAR * (limit - 1), _GROWN * usually):
        return NUMERICS, (
            "from the first token on, by more than two kernels usually do and less than other weights would "
            f"{_ADVICE}; quantised weights, or another type (--torch_dtype) on the server, look like this too"
        )
    if agreed:
        return WEIGHTS, (
            f"they agreed at step {agreed[-1].step}, so the engine's weights are stale: the weight sync does "
            "not reach it, or the server has been restarted; restart server and run, and look at the "
            "server's log for the sync"
        )
    prompts = "the prompts are equal" if now.prompts else "no prompts were compared"
    return WEIGHTS, (
        f"{prompts} and the first tokens already differ: the engine runs different weights (another "
        "checkpoint, LoRA that was not applied, quantised), samples at other settings, or reads images "
        "otherwise (pixels, positions)"
    )


def prompt_difference(
    engine: Sequence[int],
    trainer: Sequence[int],
    placeholders: Collection[int],
    images: int,
    decode: Callable[[Sequence[int]], str],
) -> str:
    """Describe how an engine's prompt differs from the row that is trained on; empty if it does not.

    Args:
        engine: Token ids of the prompt, of several turns that of the last one.
        trainer: Token ids of the whole row.
        placeholders: Ids that stand for images. They are counted, and compared unless either side has one for
            each image.
        images: Number of images in the row.
        decode: Gives the text of token ids.
    """
    if list(trainer[: len(engine)]) == list(engine):
        return ""
    seen, trained = ([token for token in ids if token not in placeholders] for ids in (engine, trainer))
    if seen == trained[: len(seen)]:
        of_engine, of_trainer = (_runs(ids, placeholders) for ids in (engine, trainer))
        if of_engine == of_trainer or images in (sum(of_engine), sum(of_trainer)):
            return ""
        return (
            f"images are {of_engine} tokens in the engine and {of_trainer} in the trainer: they are resized "
            "differently, or lost on one side; give MAX_PIXELS, MIN_PIXELS (and the like) to the rollout "
            "server, too"
        )
    pairs = zip(seen, trained, strict=False)
    place = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    here, there = (repr(decode(ids[place : place + 1])) for ids in (seen, trained))
    return (
        f"token {place} is {here} in the engine and {there} in the trainer, after "
        f"{decode(seen[max(0, place - _CONTEXT) : place])!r}: system prompt, chat template (--template, "
        "--enable_thinking, --response_prefix) or times of a video differ"
    )


def _runs(ids: Sequence[int], placeholders: Collection[int]) -> list[int]:
    """Lengths of the runs of placeholders: about one for each image."""
    return [len(list(run)) for held, run in groupby(ids, key=placeholders.__contains__) if held]
