"""What each quickstart model is and how it is trained: every figure in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from swift_grpo_ext import testing

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
# Of both parts, which families of transformers' table have apart.
_WIDER: dict[str, Any] = {"initializer_range": 0.06, "vision": {"initializer_range": 0.06}}


def _frozen(values: Mapping[str, Any]) -> Any:
    return field(default_factory=lambda: MappingProxyType(dict(values)))


@dataclass(frozen=True)
class Setting:
    """A model and the host's arguments that train it.

    Attributes:
        name: Name for people.
        build: Writes the random checkpoint.
        sizes: Its sizes.
        seed: Seed of weights, data split, training and sampling.
        sft: Arguments of ``swift sft``.
        grpo: Arguments of ``swift rlhf``.
    """

    name: str
    build: Callable[..., Path]
    # Wider random weights than the published 0.02: a model this narrow learns to see ten times sooner.
    sizes: Mapping[str, Any] = _frozen({"initializer_range": 0.06})
    seed: int = 42
    sft: Mapping[str, Any] = _frozen(_SFT)
    grpo: Mapping[str, Any] = _frozen(_GRPO)

    def with_seed(self, seed: int | None) -> Setting:
        """The same with another seed; None keeps it."""
        return self if seed is None else replace(self, seed=seed)


SETTINGS: Mapping[str, Setting] = {
    "qwen2_5_vl": Setting("Qwen2.5-VL", testing.tiny_qwen2_5_vl),
    # Its random visual vocabulary takes longer to make sense, and at 1e-3 it settles on a few digits.
    "ovis2": Setting(
        "Ovis2",
        testing.tiny_ovis2,
        sft=MappingProxyType({**_SFT, "max_steps": 130}),
        grpo=MappingProxyType({**_GRPO, "learning_rate": 5e-4}),
    ),
    **{
        family: Setting(name, partial(testing.tiny_checkpoint, family), sizes=MappingProxyType(_WIDER))
        for family, name in (("qwen3_5", "Qwen3.5"), ("qwen3_vl", "Qwen3-VL"))
    },
}
DEFAULT = "qwen2_5_vl"


def default_output(model: str) -> Path:
    """Folder of a model's run, so that one does not overwrite the other."""
    return Path("output", "quickstart" if model == DEFAULT else f"quickstart_{model}")
