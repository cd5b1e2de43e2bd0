"""Holds the log-probs of one micro-batch against the stock path's, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# Largest mean and largest single difference. Below fp32 the stock path itself rounds log-probs to 3 digits.
TOLERANCE = {torch.float32: (1e-4, 5e-3), torch.float64: (1e-4, 5e-3)}
_HALF = (0.1, 2.0)


def mismatch(ours: Tensor, stock: Tensor, mask: Tensor, dtype: torch.dtype) -> str:
    """How far two sets of log-probs are apart, if further than the dtype of the weights explains.

    Args:
        ours: ``(batch, keep)``.
        stock: ``(batch, keep)``.
        mask: ``(batch, keep)``, True where they count.
        dtype: Of the model's weights.

    Returns:
        A clause for the log; empty if they agree.
    """
    difference = (ours.float() - stock.float()).abs()[mask.bool()]
    if not len(difference):
        return ""
    mean, largest = float(difference.mean()), float(difference.max())
    allowed_mean, allowed_largest = TOLERANCE.get(dtype, _HALF)
    if mean <= allowed_mean and largest <= allowed_largest:  # NaN is a mismatch
        return ""
    return f"log-probs differ from the stock path's by {mean:.2g} on average, at most {largest:.2g}"


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
