"""Stands in for ``transformer_engine.common``: the names of FP8 recipes."""

from . import recipe  # noqa: F401
