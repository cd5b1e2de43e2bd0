"""Comparisons that depend neither on the processor nor on the number of threads.

Two ways of computing one thing are compared in double precision, where what is left of rounding is far below
any mistake. Below it, each is compared with double precision, and stock's own distance is the measure.
"""

from contextlib import contextmanager

import pytest
import torch

DOUBLE = 1e-9  # of equal things computed in double precision; measured: 1e-15 to 5e-13


@contextmanager
def in_float64():
    """Whoever asks torch for single precision gets double, models that cast inside too."""
    single = torch.get_default_dtype()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("transformers.integrations.moe._can_use_grouped_mm", lambda *given: False)
        patched.setattr(torch, "float32", torch.float64)
        patched.setattr(torch, "float", torch.float64)
        patched.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(single)
