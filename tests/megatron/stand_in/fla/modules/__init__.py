"""Stands in for ``fla.modules``."""
