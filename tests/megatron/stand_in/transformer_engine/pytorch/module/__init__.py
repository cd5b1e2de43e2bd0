"""Stands in for ``transformer_engine.pytorch.module``: linear layers and norms."""

from . import base  # noqa: F401
from .linear import GroupedLinear, LayerNormLinear, LayerNormMLP, Linear  # noqa: F401
from .norm import LayerNorm, RMSNorm  # noqa: F401
