"""What the monitors read of the trainer that they watch."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Protocol

from torch import nn


class Watched(Protocol):
    """ms-swift's GRPO trainer as the monitors see it; `swift_grpo_ext.trainer.host.Host` has the rest.

    tests/test_host_names.py holds every name against the installed ms-swift, on both ends of the range.
    """

    args: Any
    state: Any
    accelerator: Any
    model: nn.Module
    optimizer: Any
    is_deepspeed_enabled: bool
    is_fsdp_enabled: bool
    num_generations: int
    beta: float
    reward_func_names: list[str]
    sample_cls: Any
    _metrics: dict[str, defaultdict[str, list[float]]]

    def save_model(self, output_dir: str, _internal_call: bool) -> None:
        """Writes the model."""

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Writes their states."""

    def _save_scaler(self, output_dir: str) -> None:
        """Writes the loss scaler's state."""

    def _save_rng_state(self, output_dir: str) -> None:
        """Writes the states of the random number generators."""
