"""The rules of preflight, by subject. Importing this fills the table."""

from swift_grpo_ext.doctor.check.rules import batch, engine, learning, model, script, stack
from swift_grpo_ext.doctor.check.rules.table import table

__all__ = ["batch", "engine", "learning", "model", "script", "stack", "table"]
