"""Log-probs of sampled tokens under the distribution that they were sampled from, filters included."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from logits."""

    temperature: float = 1.0  # divides the logits; above 0
    top_k: int = 0  # only so many of the likeliest tokens; 0 or less: all
    top_p: float = 1.0  # only the likeliest tokens that together reach this probability, 0 to 1
    min_p: float = 0.0  # only tokens at least this likely, as a share of the likeliest one, 0 to 1
    forbidden: tuple[int, ...] = ()  # ids that are never drawn


def sampled_logps(logits: Tensor, tokens: Tensor, sampling: Sampling) -> Tensor:
    """``(N,)`` log-probs in fp32 of tokens drawn from logits.

    A token that the filters leave out keeps the value that it would have were it let through: rounding moves
    tokens over a filter's edge, and minus infinity would say nothing about how far they are from it.

    Args:
        logits: ``(N, vocab)``.
        tokens: ``(N,)`` ids.
        sampling: How they were drawn. The order of the filters is that of transformers and vLLM: ``top_k``,
            then ``top_p`` of what is left.

    Example:
        >>> logits = torch.tensor([[2.0, 1.0, 0.0]])
        >>> sampled_logps(logits, torch.tensor([0]), Sampling(top_k=1)).tolist()
        [0.0]
    """
    logits = logits.float() / sampling.temperature
    logps = logits.log_softmax(-1)
    if sampling.forbidden:
        rest = logits.index_fill(-1, torch.tensor(sampling.forbidden, device=logits.device), -torch.inf)
        logps = (logits - rest.logsumexp(-1, keepdim=True)).where(rest.isfinite(), logps)
    found = logps.gather(-1, tokens[:, None])[:, 0]
    if sampling.top_k <= 0 and sampling.top_p >= 1 and sampling.min_p <= 0:
        return found
    likely = logps.index_fill(-1, logps.new_tensor(sampling.forbidden, dtype=torch.long), -torch.inf)
    ordered = likely.sort(-1, descending=True).values.exp()
    allowed = torch.ones_like(ordered, dtype=torch.bool)
    if sampling.top_k > 0:
        allowed[:, sampling.top_k :] = False
    ordered = ordered * allowed
    if sampling.top_p < 1:
        share = ordered / ordered.sum(-1, keepdim=True)
        allowed &= share.cumsum(-1) - share < sampling.top_p  # always keeps the likeliest
    if sampling.min_p > 0:
        allowed &= ordered >= sampling.min_p * ordered[:, :1]
    return found - (ordered * allowed).sum(-1).log()
