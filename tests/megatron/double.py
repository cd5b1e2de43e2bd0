"""A function of transformers in double precision.

The gradient of a decay (gated delta nets) is a sum whose terms cancel, and large where a state is handed on: in fp32 it is
off by a rounding of those, which may be a percent of it. Only without it can two ways be compared.
"""

import inspect
import types

import torch


class _Double:
    """torch, whose float32 is float64."""

    def __getattr__(self, name):
        return torch.float64 if name == "float32" else getattr(torch, name)


def in_double(function):
    """A function that computes in float32, in float64; what it returns in the type of its input stays so."""
    inner = inspect.unwrap(function)  # around it is a wrapper that looks for flash-linear-attention
    made = types.FunctionType(
        inner.__code__, {**inner.__globals__, "torch": _Double()}, inner.__name__, inner.__defaults__
    )
    made.__kwdefaults__ = inner.__kwdefaults__
    return made
