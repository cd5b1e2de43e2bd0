"""What the rules of the lint look at, and the table that they stand in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.findings import RuleTable


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
    def zero(self) -> Mapping[str, Any]:
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

    def offloads(self, what: str) -> bool:
        """Whether ``offload_optimizer`` or ``offload_param`` goes to the CPU or to disk."""
        block = self.zero.get(what)
        return isinstance(block, Mapping) and block.get("device", "none") != "none"

    def is_harmed_by(self, defect: str) -> bool:
        """Whether the installed DeepSpeed is known to have a defect that nothing fixes."""
        return DEFECTS[defect].harms({"deepspeed": self.version}, self.healed)


table: RuleTable[Setup] = RuleTable()
