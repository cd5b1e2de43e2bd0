"""Log-probs (and entropies) of tokens without ``(batch, completion, vocab)`` logits, and figures over them.

The output layer runs over a few positions at a time, again in the backward pass. It is called at its own
place in the model, so that what is attached to it (ZeRO-3's gathering, adapters, FSDP) still works.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from swift_grpo_ext.group.pack_memory import CHUNK_BYTES
from swift_grpo_ext.swap import swapped

Hidden = Float[Tensor, "tokens hidden"]
Head = Callable[[Hidden], Float[Tensor, "tokens vocab"]]


@dataclass(frozen=True)
class TokenQuery:
    """Targets and options of one call of the output layer."""

    targets: Int[Tensor, " tokens"]  # ids
    vocab_size: int  # width of the logits
    temperature: float = 1.0  # divides the logits
    with_entropy: bool = False  # also entropies, without gradient: ms-swift only compares and logs them
    chunk_bytes: int = CHUNK_BYTES  # most bytes of fp32 logits at a time


def score(hidden: Hidden, head: Head, query: TokenQuery) -> Float[Tensor, "tokens 2"]:
    """Log-prob and entropy, in fp32, of each target, predicted by ``hidden``."""
    chunk = max(1, query.chunk_bytes // (4 * query.vocab_size))
    parts = list(zip(hidden.split(chunk), query.targets.split(chunk), strict=True))
    if not torch.is_grad_enabled():
        return torch.cat([_score_chunk(*part, head, query) for part in parts])
    done = [checkpoint(_score_chunk, *part, head, query, use_reentrant=False) for part in parts[:-1]]
    # The backward pass begins with the last chunk: keeping its logits takes no more memory at the peak.
    return torch.cat([*done, *(_score_chunk(*part, head, query) for part in parts[-1:])])


def _score_chunk(
    hidden: Hidden, targets: Int[Tensor, " tokens"], head: Head, query: TokenQuery
) -> Float[Tensor, "tokens 2"]:
    logits = head(hidden).float()
    if query.temperature != 1.0:
        logits = logits / query.temperature
    normalizer = logits.logsumexp(-1)
    logps = logits.gather(-1, targets[:, None])[:, 0] - normalizer
    entropy = torch.zeros_like(normalizer)
    if query.with_entropy:
        with torch.no_grad():
            entropy = normalizer - (logits.softmax(-1) * logits).sum(-1)
    return torch.stack([logps, entropy.detach()], -1)


@contextmanager
def scores_for_logits(
    head: nn.Module, query: TokenQuery, select: Callable[[Float[Tensor, "rows places hidden"]], Hidden]
) -> Iterator[None]:
    """While this is open, the output layer answers with `score` of the states that ``select`` picks."""
    logits_of = head.forward

    def forward(hidden: Float[Tensor, "rows places hidden"]) -> Float[Tensor, "tokens 2"]:
        return score(select(hidden), logits_of, query)

    with swapped(head, "forward", forward):
        yield


def per_token_kl(
    logps: Float[Tensor, "*tokens"], ref_logps: Float[Tensor, "*tokens"]
) -> Float[Tensor, "*tokens"]:
    """The k3 estimate of KL(policy || reference) of each token, clamped as ms-swift's loss clamps it."""
    log_ratio = (ref_logps - logps).clamp(-20, 20)
    return (log_ratio.exp() - log_ratio - 1).clamp(-10, 10)


@dataclass
class WeightedMean:
    """A mean over tokens of many micro-batches, whatever their sizes."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, total: float, weight: float) -> None:
        """Add the sum over some tokens and their number."""
        if math.isfinite(total):
            self.total += total
            self.weight += weight

    @property
    def value(self) -> float:
        """The mean; NaN before anything was added."""
        return self.total / self.weight if self.weight else math.nan


def with_mean_for_nonfinite(values: Sequence[Float[Tensor, ""] | float]) -> list[Float[Tensor, ""] | float]:
    """The values with the mean of the finite ones in the place of others; empty if none is finite."""
    good = [value for value in values if math.isfinite(float(value))]
    if not good:
        return []
    mean = sum(good) / len(good)
    return [value if math.isfinite(float(value)) else mean for value in values]
