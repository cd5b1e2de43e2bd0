"""Stands in for ``transformer_engine.pytorch.attention``: scaled dot products and rotary embedding."""

from . import rope  # noqa: F401
from .dot_product import DotProductAttention  # noqa: F401
