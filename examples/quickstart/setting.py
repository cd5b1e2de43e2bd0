"""What each quickstart model is and how it is trained: every figure in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

# So few steps that it answers in digits and is right about half of the time, which leaves GRPO room.
_SFT: dict[str, Any] = {
    "max_steps": 60,
    "per_device_train_batch_size": 16,
    "learning_rate": 2e-3,
    "logging_steps": 5,
}


# Eight prompts of eight completions a step.
_GRPO: dict[str, Any] = {
    "max_steps": 300,
    "per_device_train_batch_size": 64,
    "num_generations": 8,
    "learning_rate": 1e-3,
    "beta": 0.01,
    "max_completion_length": 4,
    "temperature": 1.0,
    "reward_funcs": "ext_choice",
}
# Wider random weights than the published 0.02: a model this narrow learns to see ten times sooner.
SIZES: dict[str, Any] = {"initializer_range": 0.06}


def _frozen(values: Mapping[str, Any]) -> Any:
    return field(default_factory=lambda: MappingProxyType(dict(values)))


@dataclass(frozen=True)
class Setting:
    """A model and the host's arguments that train it.

    Attributes:
        family: Of the random checkpoint.
        name: Name for people.
        seed: Seed of weights, data split, training and sampling.
        sft: Arguments of ``swift sft``.
        grpo: Arguments of ``swift rlhf``.
    """

    family: str
    name: str
    seed: int = 42
    sft: Mapping[str, Any] = _frozen(_SFT)
    grpo: Mapping[str, Any] = _frozen(_GRPO)

    def with_seed(self, seed: int | None) -> Setting:
        """The same with another seed; None keeps it."""
        return self if seed is None else replace(self, seed=seed)


_ALL = (
    Setting("qwen2_5_vl", "Qwen2.5-VL"),
    # Its random visual vocabulary takes longer to make sense, and at 1e-3 it settles on a few digits.
    Setting(
        "ovis2",
        "Ovis2",
        sft=MappingProxyType({**_SFT, "max_steps": 130}),
        grpo=MappingProxyType({**_GRPO, "learning_rate": 5e-4}),
    ),
    Setting("qwen3_5", "Qwen3.5"),
    Setting("qwen3_vl", "Qwen3-VL"),
)
SETTINGS: Mapping[str, Setting] = {one.family: one for one in _ALL}
DEFAULT = "qwen2_5_vl"


def default_output(model: str) -> Path:
    """Folder of a model's run, so that one does not overwrite the other."""
    return Path("output", "quickstart" if model == DEFAULT else f"quickstart_{model}")
