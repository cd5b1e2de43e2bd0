"""Puts the catalogue into the host's ``orms`` table."""

from __future__ import annotations


def register_orms() -> list[str]:
    """Register the rewards. So far there are none."""
    return []
