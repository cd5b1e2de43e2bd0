"""A micro-batch with some of its completions only: without silent ones, or in parts.

Nothing can be learned from a silent completion: its advantage is exactly 0, and nobody else reads it. Its
log-probs have a gradient of exactly 0, so the policy's pass leaves it out; what the loss divides by stays.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils import checkpoint

from swift_grpo_ext.group.family import Family
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.micro_batch import MicroBatch, groups_of, packed
from swift_grpo_ext.group.shared_prefix import CannotPackError, read_rows


def narrowed(
    batch: MicroBatch, tokens: Tensor, family: Family | None, form: PackForm, prompts: Sequence[str] = ()
) -> MicroBatch:
    """The same micro-batch with some of its completions only; with none, a pack of two tokens.

    ``tokens``, ``(batch, keep)`` bool, have the loss of those that stay. Raises `CannotPackError`.
    """
    if batch.media is None:
        raise CannotPackError("images that cannot be told apart")
    if bool(tokens.any()):
        groups, order = groups_of(batch, tokens, family, prompts)
        return replace(batch, completion_mask=tokens, pack=packed(batch, groups, tokens, form), order=order)
    # Something has to run, or this rank would call the model less often than the others.
    attention_mask, losses = batch.inputs["attention_mask"], batch.completion_mask
    token = first_token(losses if bool(losses.any()) else attention_mask[:, -losses.shape[1] :])
    rows = [row for row in read_rows(attention_mask, token) if row.stop > row.split]
    start = [[replace(row, start=row.split - 1)] for row in rows]
    return replace(batch, completion_mask=token, pack=packed(batch, start, token, form), order={})


def in_parts(batch: MicroBatch, parts: int, family: Family | None, form: PackForm) -> list[MicroBatch]:
    """Packs of some rows each, that have all completions between them; the whole, if it cannot be packed."""
    mask = batch.completion_mask
    # As many parts on every rank, for each is a call of the model.
    chunks = torch.arange(len(mask), device=mask.device).tensor_split(parts)
    some = [torch.zeros_like(mask).index_copy(0, rows, mask[rows]) for rows in chunks]
    try:
        return [narrowed(batch, tokens, family, form) for tokens in some]
    except CannotPackError:
        return [batch]


def summed(parts: Sequence[Callable[[], Tensor]]) -> Tensor:
    """The sum of what the parts give, each 0 where it has nothing to say.

    Every part runs without a graph, and again when the sum's gradient is known, so gradients are those of one
    pass.
    """
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

    Without any tokens the scores only keep the model's parameters in the graph. ``others`` stand for the log-
    probs of the rest, so that their importance ratio is 1: the old ones; 0 if there are none, for the loss
    then takes these for the old ones, too.
    """
    logps = scores[..., 0]
    rest = torch.zeros_like(logps) if others is None else others.to(logps.dtype)
    if not bool(tokens.any()):
        return rest + 0.0 * logps.sum(), torch.zeros_like(logps)
    return torch.where(tokens, logps, rest), scores[..., 1]
