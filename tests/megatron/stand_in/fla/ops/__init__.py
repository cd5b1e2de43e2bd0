"""Stands in for ``fla.ops``."""
