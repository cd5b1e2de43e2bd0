"""Holds our log-probs of a micro-batch against ms-swift's own way."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from swift_grpo_ext.group.micro_batch import MicroBatch
from swift_grpo_ext.group.self_check import mismatch, without_dropout

_ROWS = 8


def compare(
    model: nn.Module,
    batch: MicroBatch,
    ours: Callable[[], Tensor],
    stock: Callable[..., Any],
    dtype: torch.dtype,
) -> str:
    """Why our log-probs of the first rows of a micro-batch cannot be used; empty if they can.

    Args:
        model: The model as the trainer calls it.
        batch: The micro-batch.
        ours: Gives ``(batch, keep, 2)`` log-probs and entropies.
        stock: ms-swift's ``_get_per_token_logps_and_entropies_single``.
        dtype: Of the model's weights.
    """
    keep = batch.completion_mask.shape[1]
    rows = range(min(len(batch.completion_mask), _ROWS))
    with torch.no_grad(), without_dropout(model):
        found = ours()[: len(rows), :, 0]
        region = SimpleNamespace(logits_to_keep=keep)
        if batch.media is None:  # no row can be taken out with its pixels
            theirs = stock(model, dict(batch.inputs), region)[0][: len(rows)]
        else:
            theirs = torch.cat([stock(model, batch.row_inputs(row), region)[0] for row in rows])
    return mismatch(found, theirs, batch.completion_mask[: len(rows)], dtype)
