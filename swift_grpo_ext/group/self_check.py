"""Holds the log-probs of one micro-batch against the stock path's, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# Largest mean and largest single difference. Below fp32 the stock path itself rounds log-probs to 3 digits.
TOLERANCE = {torch.float32: (1e-4, 5e-3), torch.float64: (1e-4, 5e-3)}
_HALF = (0.1, 2.0)
_MIXED = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


def mismatch(ours: Tensor, stock: Tensor, mask: Tensor, dtype: torch.dtype) -> str:
    """How far two sets of log-probs are apart, if further than the dtype of the weights explains.

    Args:
        ours: ``(batch, keep)``.
        stock: ``(batch, keep)``.
        mask: ``(batch, keep)``, True where they count.
        dtype: In which the model computes.

    Returns:
        A clause for the log; empty if they agree.
    """
    # What stock cannot compute is no measure: where only it is not finite, ours stays.
    difference = (ours.float() - stock.float()).abs()[mask.bool() & stock.isfinite()]
    if not len(difference):
        return ""
    mean, largest = float(difference.mean()), float(difference.max())
    allowed_mean, allowed_largest = TOLERANCE.get(dtype, _HALF)
    if mean <= allowed_mean and largest <= allowed_largest:  # NaN is a mismatch
        return ""
    return f"log-probs differ from the stock path's by {mean:.2g} on average, at most {largest:.2g}"


def forward_dtype(weights: torch.dtype, mixed_precision: str) -> torch.dtype:
    """The coarser of the weights' dtype and that of mixed precision.

    Args:
        weights: Of the model.
        mixed_precision: As accelerate names it: ``no``, ``bf16``, ``fp16`` or ``fp8``.
    """
    mixed = _MIXED.get(mixed_precision, weights)
    return max(weights, mixed, key=lambda dtype: torch.finfo(dtype).eps)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """While this is open, dropout does nothing, so that two passes can be compared."""
    active = [module for module in model.modules() if isinstance(module, nn.Dropout) and module.training]
    for module in active:
        module.eval()
    try:
        yield
    finally:
        for module in active:
            module.train()
