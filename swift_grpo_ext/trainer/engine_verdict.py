"""How far a rollout engine is from the trainer's policy, and what to make of it.

``d`` is the difference, in nats, of the log-probs of a sampled token. What matters for learning is the mean
of ``exp|d|``: the factor by which an importance ratio is off. NeMo-RL gates its recipes by hand at 1.05.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest

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
_ADVICE = (
    "(usual: 0.01 to 0.03 in bf16, below 0.001 in fp32); --rollout_importance_sampling_mode token_truncate "
    "corrects for it"
)


_CLEAR = 32  # tokens that a turn of a rank needs to be judged by itself, if any has so many


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
        """Mean |d| in nats; there is a token."""
        return self.absolute / self.tokens

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
    first_gap: str = ""  # where log-probs first differ, in words; of the turn with the largest difference

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
            self.first_gap if self.all.largest >= other.all.largest else other.first_gap,
        )


def judge(
    parts: Mapping[tuple[int, int], Agreement],
    agreed: int | None,
    name: str,
    limit: float,
    lags: bool = False,
) -> EngineRecord:
    """Give the figures of a check and the fault between engine and trainer, if there is one.

    Args:
        parts: By rank, which may have an engine of its own, and by turn. Those that are apart are judged by
            themselves: they would drown in the mean over all.
        agreed: Step at which a check last found no fault.
        name: The engine's.
        limit: Largest mean of exp|d| of a healthy engine.
        lags: Rollouts are one step behind on purpose (``--async_generate``), so only prompts are judged.
    """
    compared = {place: part for place, part in parts.items() if part.all.tokens}
    clear = {place: part for place, part in compared.items() if part.all.tokens >= _CLEAR} or compared
    apart = {place: part for place, part in clear.items() if part.all.mean_ratio > limit}
    now = sum((apart or compared).values(), Agreement())
    gap = now.all
    record = EngineRecord(gap.mean_ratio, gap.mean, gap.largest) if compared else EngineRecord()
    all_parts = sum(parts.values(), Agreement())
    if all_parts.prompt:
        text = f"{name} got another prompt than the trainer: {all_parts.prompt}"
        return replace(record, rule=PROMPT, text=text)
    if lags or not apart:
        return record
    ranks = {rank for rank, _ in apart}
    which = f" of rank {', '.join(map(str, sorted(ranks)))}" if ranks < {rank for rank, _ in clear} else ""
    other_turns_agree = any(rank in ranks for rank, _ in clear.keys() - apart.keys())
    tokens = "some turns alone" if other_turns_agree else "sampled tokens"
    rule, cause = _cause(now, None if other_turns_agree else agreed, limit, bool(all_parts.prompts))
    text = (
        f"{name}{which} and trainer disagree on {tokens} (mean |d| {gap.mean:.2g} nats, mean exp|d| "
        f"{gap.mean_ratio:.3g}): {cause}; {now.first_gap}"
    )
    return replace(record, rule=rule, text=text)


def _cause(now: Agreement, agreed: int | None, limit: float, prompts_are_equal: bool) -> tuple[str, str]:
    """Rule and cause of a distance: by where it begins, and since when."""
    if now.rest.tokens and now.begin.mean_ratio <= limit:
        return NUMERICS, (
            f"they agree on the first {EARLY} tokens and drift apart later: numerics of two kernels {_ADVICE}"
        )
    if now.all.mean_ratio - 1 <= _UNCLEAR * (limit - 1):
        return NUMERICS, (
            "from the first token on, by more than two kernels usually do and less than other weights would "
            f"{_ADVICE}; quantised weights, another type (--torch_dtype) on the server, or weights that are "
            "some steps old look like this too"
        )
    if agreed is not None:
        return WEIGHTS, (
            f"they agreed at step {agreed}, so the engine's weights are stale: the weight sync does "
            "not reach it, or the server has been restarted; restart server and run, and look at the "
            "server's log for the sync"
        )
    prompts = "the prompts are equal" if prompts_are_equal else "no prompts were compared"
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
    pairs = enumerate(zip_longest(seen, trained))
    place = next(place for place, (ours, theirs) in pairs if ours != theirs)
    here, there = (repr(decode(ids[place : place + 1])) for ids in (seen, trained))
    return (
        f"token {place} is {here} in the engine and {there} in the trainer: system prompt, chat template "
        "(--template, --enable_thinking, --response_prefix) or times of a video differ"
    )


def _runs(ids: Sequence[int], placeholders: Collection[int]) -> list[int]:
    """Lengths of the runs of placeholders: about one for each image."""
    return [len(list(run)) for held, run in groupby(ids, key=placeholders.__contains__) if held]
