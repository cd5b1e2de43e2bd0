"""What is looked at while a run goes on: callbacks, monitors, report."""

from __future__ import annotations


def register() -> list[str]:
    """Register the callbacks. So far there are none."""
    return []
