"""Lint of a DeepSpeed configuration for GRPO: presets copied from elsewhere, and what is wrong with them."""

from __future__ import annotations

from swift_grpo_ext.deepspeed.lint import blocks, sharding
from swift_grpo_ext.deepspeed.lint.setup import Setup, table
from swift_grpo_ext.findings import Finding

__all__ = ["Setup", "blocks", "lint", "sharding", "table"]


def lint(setup: Setup) -> list[Finding]:
    """Everything wrong with a configuration, worst first."""
    return table.findings(setup)
