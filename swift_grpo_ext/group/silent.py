"""Completions from which nothing can be learned: an advantage of exactly 0 and nobody else who reads them.

Their log-probs have a gradient of exactly 0, so the policy's pass leaves them out; what the loss divides by
stays as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor


def silent_rows(advantages: Tensor, completion_mask: Tensor, filtered: Tensor | None = None) -> Tensor:
    """Rows without a gradient, ``(batch,)`` bool; ``filtered`` ones will leave the loss."""
    zero = advantages.view(len(completion_mask), -1) == 0
    silent: Tensor = (zero | ~completion_mask.bool()).all(1)
    return silent if filtered is None else silent | filtered.bool()


def heard(completion_mask: Tensor, silent: Tensor) -> Tensor:
    """Tokens ``(batch, keep)`` whose log-probs are needed: those of rows that are not silent."""
    return completion_mask.bool() & ~silent.unsqueeze(1)


def first_token(completion_mask: Tensor) -> Tensor:
    """``(batch, keep)``, True at the first token of the first row that has one, and nowhere else."""
    chosen = torch.zeros_like(completion_mask, dtype=torch.bool)
    place = completion_mask.bool().flatten().int().argmax()
    chosen.view(-1)[place] = completion_mask.bool().any()
    return chosen


def filled(scores: Tensor, tokens: Tensor, others: Tensor | None) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies ``(batch, keep)`` of a whole micro-batch from those of some of its tokens.

    Without any tokens the scores only keep the model's parameters in the graph. ``others`` stand for the log-
    probs of the rest, so that their importance ratio is 1: the old ones; 0 if there are none, for the loss
    then takes these for the old ones, too.
    """
    logps = scores[..., 0]
    rest = torch.zeros_like(logps) if others is None else others.to(logps.dtype)
    if not bool(tokens.any()):
        return rest + 0.0 * logps.sum(), torch.zeros_like(logps)
    return torch.where(tokens, logps, rest), scores[..., 1]
