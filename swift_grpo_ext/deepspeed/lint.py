"""Lint of a DeepSpeed configuration for GRPO: presets copied from elsewhere, and what is wrong with them.

What users read of each rule, and most rules as a whole, stand in ``lint.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import nearest
from swift_grpo_ext.findings import Finding, Problem, WrittenRules

# Key of zero_optimization -> what replaces it.
LEGACY_KEYS = {
    "cpu_offload": '"offload_optimizer": {"device": "cpu"}',
    "cpu_offload_params": '"offload_param": {"device": "cpu"}',
    "cpu_offload_param": '"offload_param": {"device": "cpu"}',
    "cpu_offload_use_pin_memory": '"pin_memory" inside the offload blocks',
    "stage3_gather_fp16_weights_on_model_save": '"stage3_gather_16bit_weights_on_model_save"',
}
# Top level keys that people write; DeepSpeed has more.
_KEYS_TEXT = """
    activation_checkpointing bf16 communication_data_type data_types fp16 gradient_accumulation_steps
    gradient_clipping optimizer scheduler steps_per_print train_batch_size
    train_micro_batch_size_per_gpu wall_clock_breakdown zero_allow_untested_optimizer
    zero_force_ds_cpu_optimizer zero_optimization
    """
_KEYS = _KEYS_TEXT.split()


@dataclass(frozen=True)
class Setup:
    """A DeepSpeed configuration and what of the run bears on it."""

    config: Mapping[str, Any]  # the configuration, `"auto"` values unfilled
    version: str | None = None  # installed DeepSpeed; None if unknown
    ranks: int = 1  # training processes of all nodes
    ranks_per_node: int = 1  # training processes of one node
    micro_batch: int = 1  # `--per_device_train_batch_size`
    accumulation: int = 1  # `--gradient_accumulation_steps`
    full_training: bool = False  # `--tuner_type full`
    second_model: bool = False  # A reference, reward or teacher model is loaded beside the policy
    separate_rates: bool = False  # `--vit_lr` or `--aligner_lr` is given
    bf16: bool = True  # the weights are bfloat16
    offload_model: bool = False  # `--offload_model`
    offload_optimizer: bool = False  # `--offload_optimizer`
    fills_hpz: bool = False  # our preset hook is active and fills `zero_hpz_partition_size: "auto"`
    # further values of the command line that the file may not contradict, by dotted key
    expected: Mapping[str, Any] = field(default_factory=dict)
    # defect ids and patch ids of the patches that are active
    healed: frozenset[str] = field(default_factory=frozenset)

    @property
    def zero(self) -> Mapping[str, object]:
        """The ``zero_optimization`` block."""
        block = self.config.get("zero_optimization")
        return block if isinstance(block, Mapping) else {}

    @property
    def stage(self) -> int:
        """ZeRO stage; 0 without one, or with one that is no number."""
        stage = self.zero.get("stage", 0)
        return stage if isinstance(stage, int) else 0

    def value(self, key: str) -> Any:
        """The value at a dotted key; None where there is none."""
        node: Any = self.config
        for name in key.split("."):
            node = node.get(name) if isinstance(node, Mapping) else None
        return node

    @property
    def one_node(self) -> bool:
        """All ranks are on one machine."""
        return self.ranks <= self.ranks_per_node

    def offloads(self, what: str) -> bool:
        """Whether ``offload_optimizer`` or ``offload_param`` goes to the CPU or to disk."""
        block = self.zero.get(what)
        return isinstance(block, Mapping) and block.get("device", "none") != "none"

    def is_harmed_by(self, defect: str) -> bool:
        """Whether the installed DeepSpeed is known to have a defect that nothing fixes."""
        return DEFECTS[defect].harms({"deepspeed": self.version}, self.healed)


_PLACES = {
    "file": Setup.value,
    "zero": lambda setup, key: setup.zero.get(key),
    "offloads": Setup.offloads,
    "healed": lambda setup, defect: defect in setup.healed,
    "harmed": Setup.is_harmed_by,
}


def _value(setup: Setup, name: str) -> object:
    """What a name of ``lint.yaml`` stands for: an attribute of the setup, or what its prefix says."""
    place, _, rest = name.partition(".")
    if name == "fix":
        return {id: defect.fix for id, defect in DEFECTS.items()}
    return _PLACES[place](setup, rest) if place in _PLACES else getattr(setup, name)


table = WrittenRules(Path(__file__).with_suffix(".yaml"), _value)


def lint(setup: Setup) -> list[Finding]:
    """Everything wrong with a configuration, worst first."""
    return table.findings(setup)


@table.on("ds-legacy-keys")
def _legacy_keys(setup: Setup) -> Iterator[Problem]:
    for key, new in LEGACY_KEYS.items():
        if key in setup.zero:
            yield Problem("key of an old DeepSpeed", f"zero_optimization.{key}", f"write {new}")
    if isinstance(setup.config.get("zero_optimization"), bool):
        yield Problem("a boolean is no ZeRO block", "zero_optimization", '"zero_optimization": {"stage": 2}')


@table.on("ds-mistyped-key")
def _mistyped(setup: Setup) -> Iterator[Problem]:
    for key in setup.config:
        guess = nearest(key, _KEYS, 0.86)
        if guess and key not in _KEYS:
            yield Problem(f"DeepSpeed knows no {key}", key, f'"{guess}": ...')


@table.on("ds-batch-mismatch")
def _mismatch(setup: Setup) -> Iterator[Problem]:
    expected = {
        "train_micro_batch_size_per_gpu": setup.micro_batch,
        "gradient_accumulation_steps": setup.accumulation,
        "train_batch_size": setup.micro_batch * setup.accumulation * setup.ranks,
        **setup.expected,
    }
    for key, value in expected.items():
        fixed = setup.value(key)
        if fixed not in (None, "auto", value):
            yield Problem(
                f"{key} is {fixed} here and {value} on the command line",
                key,
                f'"{key.rsplit(".", 1)[-1]}": "auto"',
            )


@table.on("ds-hpz-ranks")
def _hpz_ranks(setup: Setup) -> Iterator[Problem]:
    size = setup.zero.get("zero_hpz_partition_size", 1)
    if isinstance(size, int) and size > 1 and setup.ranks % min(size, setup.ranks):
        yield Problem(
            f"{setup.ranks} ranks are not divisible by zero_hpz_partition_size {size}",
            "zero_optimization.zero_hpz_partition_size",
            f'"zero_hpz_partition_size": {setup.ranks_per_node}',
        )


table.add_written()
