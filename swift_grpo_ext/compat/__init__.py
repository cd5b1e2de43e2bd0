"""Defects of the host or its stack, one file each."""

from __future__ import annotations


def register() -> list[str]:
    """Apply the patches that this environment needs. So far there are none."""
    return []
