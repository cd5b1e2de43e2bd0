"""The rules of preflight, by subject. Importing this fills the table."""

from swift_grpo_ext.doctor.check.rules import (
    batch,
    dataset_size,
    engine,
    grpo_only,
    host,
    learning,
    memory,
    model,
    registry_names,
    script,
    settings,
    sharding,
    stack,
    topology,
    trained,
    values,
)
from swift_grpo_ext.doctor.check.rules.table import table

__all__ = [
    "batch",
    "dataset_size",
    "engine",
    "grpo_only",
    "host",
    "learning",
    "memory",
    "model",
    "registry_names",
    "script",
    "settings",
    "sharding",
    "stack",
    "table",
    "topology",
    "trained",
    "values",
]
