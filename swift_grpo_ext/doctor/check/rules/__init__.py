"""The rules of preflight, by subject. Importing this fills the table."""

from swift_grpo_ext.doctor.check.rules import (
    amounts,
    batch,
    engine,
    grpo_only,
    host,
    learning,
    model,
    names,
    places,
    script,
    settings,
    sharding,
    stack,
    trained,
    values,
)
from swift_grpo_ext.doctor.check.rules.table import table

__all__ = [
    "amounts",
    "batch",
    "engine",
    "grpo_only",
    "host",
    "learning",
    "model",
    "names",
    "places",
    "script",
    "settings",
    "sharding",
    "stack",
    "table",
    "trained",
    "values",
]
