"""A micro-batch with some of its completions only, and a pass over it in parts."""

from __future__ import annotations

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
from swift_grpo_ext.group.silent import first_token


def narrowed(
    batch: MicroBatch,
    tokens: Tensor,
    family: Family | None,
    form: PackForm,
    prompts: Sequence[str] = (),
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
    some = [torch.zeros_like(mask).index_copy(0, rows, mask[rows]) for rows in _chunks(mask, parts)]
    try:
        return [narrowed(batch, tokens, family, form) for tokens in some]
    except CannotPackError:
        return [batch]


def _chunks(mask: Tensor, parts: int) -> Sequence[Tensor]:
    """Numbers of the rows of each part; as many parts on every rank, for each is a call of the model."""
    return torch.arange(len(mask), device=mask.device).tensor_split(parts)


def summed(parts: Sequence[Callable[[], Tensor]]) -> Tensor:
    """The sum of what the parts give, each 0 where it has nothing to say.

    Every part is run without a graph, and again when the gradient of the sum is known: gradients are those of
    one pass over all parts, whatever the loss makes of the sum.
    """
    if not torch.is_grad_enabled():
        return torch.stack([run() for run in parts]).sum(0)
    anchor = torch.zeros((), requires_grad=True)
    # The host replaces torch's function by one that always takes the other kind.
    later = inspect.unwrap(checkpoint.checkpoint)
    return torch.stack([later(lambda _, run=run: run(), anchor, use_reentrant=True) for run in parts]).sum(0)
