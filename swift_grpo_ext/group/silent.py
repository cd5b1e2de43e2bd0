"""Silent completions, which the policy's pass leaves out, and a pass in parts.

The advantage of a silent completion is exactly 0, and nobody else reads it: its log-probs have no gradient.
What the loss divides by stays.
"""

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils import checkpoint


def summed(parts: Sequence[Callable[[], Tensor]]) -> Tensor:
    """The sum of what the parts give; each runs without a graph, and again when its gradient is known."""
    if not torch.is_grad_enabled():
        return torch.stack([run() for run in parts]).sum(0)
    anchor = torch.zeros((), requires_grad=True)
    # The host replaces torch's function by one that always takes the other kind.
    later = inspect.unwrap(checkpoint.checkpoint)
    return torch.stack([later(lambda _, run=run: run(), anchor, use_reentrant=True) for run in parts]).sum(0)


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

    ``others``, the old ones, stand for the rest, whose ratio is 1; 0 where there are none, for the loss then
    takes these for the old ones. Without any tokens the scores only keep parameters in the graph.
    """
    logps = scores[..., 0]
    rest = torch.zeros_like(logps) if others is None else others.to(logps.dtype)
    if not bool(tokens.any()):
        return rest + 0.0 * logps.sum(), torch.zeros_like(logps)
    return torch.where(tokens, logps, rest), scores[..., 1]
