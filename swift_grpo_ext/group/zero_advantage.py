"""Completions of advantage 0, which the policy's pass leaves out, and a pass in parts.

Where the advantage is exactly 0, and nothing else reads the log-probs, they have no gradient. The loss's
denominator stays.
"""

import inspect
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.utils import checkpoint


def summed(parts: Sequence[Callable[[], Float[Tensor, "*shape"]]]) -> Float[Tensor, "*shape"]:
    """The sum of what the parts give; each runs without a graph, and again when its gradient is known."""
    if not torch.is_grad_enabled():
        return torch.stack([run() for run in parts]).sum(0)
    anchor = torch.zeros((), requires_grad=True)
    # ms-swift replaces torch's function by one that ignores ``use_reentrant``.
    later = inspect.unwrap(checkpoint.checkpoint)
    return torch.stack([later(lambda _, run=run: run(), anchor, use_reentrant=True) for run in parts]).sum(0)


def zero_advantage_rows(
    advantages: Float[Tensor, " batch *tokens"],
    completion_mask: Shaped[Tensor, "batch keep"],
    filtered: Shaped[Tensor, " batch"] | None = None,
) -> Bool[Tensor, " batch"]:
    """Rows without a gradient; ``filtered`` ones will leave the loss."""
    zero = advantages.view(len(completion_mask), -1) == 0
    zero_rows = (zero | ~completion_mask.bool()).all(1)
    return zero_rows if filtered is None else zero_rows | filtered.bool()


def needed_tokens(
    completion_mask: Shaped[Tensor, "batch keep"], zero_rows: Bool[Tensor, " batch"]
) -> Bool[Tensor, "batch keep"]:
    """Tokens whose log-probs are needed: those of rows with an advantage."""
    return completion_mask.bool() & ~zero_rows.unsqueeze(1)


def restored(
    scores: Float[Tensor, "batch keep 2"],
    tokens: Bool[Tensor, "batch keep"],
    others: Float[Tensor, "batch keep"] | None,
) -> tuple[Float[Tensor, "batch keep"], Float[Tensor, "batch keep"]]:
    """Log-probs and entropies of a whole micro-batch from those of some of its tokens.

    ``others``, the old log-probs, stand for the rest, whose ratio is 1; 0 without them, because the loss
    then takes these for the old ones. Without any tokens the scores only keep parameters in the graph.
    """
    logps = scores[..., 0]
    rest = torch.zeros_like(logps) if others is None else others.to(logps.dtype)
    if not bool(tokens.any()):
        return rest + 0.0 * logps.sum(), torch.zeros_like(logps)
    return torch.where(tokens, logps, rest), scores[..., 1]
