"""Asks the installed DeepSpeed whether it takes a configuration."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

# What transformers fills in for "auto" before DeepSpeed reads the configuration, for one rank.
_FILLED: dict[str, Any] = {
    "train_batch_size": 1,
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
}


def refusal(config: Mapping[str, object]) -> str:
    """DeepSpeed's own objection to a configuration; empty if it has none.

    Args:
        config: The configuration with its ``"auto"`` values. Batch sizes are left to the other checks: here
            they are taken as 1.

    Raises:
        ImportError: DeepSpeed is not installed.
    """
    from deepspeed.runtime.config import DeepSpeedConfig, DeepSpeedConfigError

    filled: dict[str, Any] = {**copy.deepcopy(dict(config)), **_FILLED}
    for block, enabled in (("bf16", True), ("fp16", False)):
        if isinstance(filled.get(block), dict) and filled[block].get("enabled") == "auto":
            filled[block]["enabled"] = enabled
    try:
        DeepSpeedConfig(filled)
    except (DeepSpeedConfigError, ValueError, AssertionError, TypeError, KeyError, AttributeError) as error:
        return f"{type(error).__name__}: {_one_line(str(error))}"
    return ""


def _one_line(message: str) -> str:
    """A message of pydantic without its addresses of documentation."""
    lines = (line.strip() for line in message.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("For further information"))
