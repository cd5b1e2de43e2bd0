"""What the rules of the lint look at, and the table that they stand in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.findings import RuleTable


@dataclass(frozen=True)
class Setup:
    """A DeepSpeed configuration and what of the run bears on it.

    Attributes:
        config: The configuration, ``"auto"`` values unfilled.
        version: Installed DeepSpeed; None if unknown.
        ranks: Training processes of all nodes.
        ranks_per_node: Training processes of one node.
        micro_batch: ``--per_device_train_batch_size``.
        accumulation: ``--gradient_accumulation_steps``.
        full_training: ``--tuner_type full``.
        second_model: A reference, reward or teacher model is loaded beside the policy.
        separate_rates: ``--vit_lr`` or ``--aligner_lr`` is given.
        bf16: The weights are bfloat16.
        offload_model: ``--offload_model``.
        offload_optimizer: ``--offload_optimizer``.
        fills_hpz: Our preset hook is active and fills ``zero_hpz_partition_size: "auto"``.
        expected: Further values of the command line that the file may not contradict, by dotted key.
        healed: Defect ids and patch ids of the patches that are active.
    """

    config: Mapping[str, Any]
    version: str | None = None
    ranks: int = 1
    ranks_per_node: int = 1
    micro_batch: int = 1
    accumulation: int = 1
    full_training: bool = False
    second_model: bool = False
    separate_rates: bool = False
    bf16: bool = True
    offload_model: bool = False
    offload_optimizer: bool = False
    fills_hpz: bool = False
    expected: Mapping[str, Any] = field(default_factory=dict)
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
