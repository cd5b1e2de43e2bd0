"""The launch commands of ms-swift's documentation, and what a tiny run of each keeps of them.

``ms_swift_commands.jsonl`` has the settings of its vision-language GRPO commands (examples and documentation,
2026-08): one object a line, with ``script``, ``engine``, ``env`` and ``args`` as written there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

COMMANDS = Path(__file__).with_name("ms_swift_commands.jsonl")
FAMILIES = {"Qwen2.5-VL": "qwen2_5_vl", "Qwen2.5-Omni": "qwen2_5_omni", "Qwen3.5": "qwen3_5"}
MEGATRON_FAMILIES = {"Qwen2.5-VL": "qwen2_5_vl", "Qwen3.5-35B-A3B": "qwen3_5_moe", "Qwen3.5": "qwen3_5"}
SIZES = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
# What a tiny model on a CPU cannot keep: lengths, GPUs and their kernels, vLLM, and environments of turns.
LEFT_OUT = (
    "model",
    "max_length",
    "max_completion_length",
    "torch_dtype",
    "attn_impl",
    "deepspeed",
    "async_generate",
    "sleep_level",
    "offload_model",
    "offload_optimizer",
    "multi_turn_scheduler",
    "max_turns",
    "teacher_model",
)


@dataclass(frozen=True)
class Row:
    """One command.

    Attributes:
        script: Where it stands.
        args: Its arguments.
        ranks: Its processes.
    """

    script: str
    args: dict[str, str]
    ranks: int

    def _number(self, name: str, default: int) -> int:
        return int(self.args.get(name, default))

    @property
    def group(self) -> int:
        """Completions of a prompt (G)."""
        return self._number("num_generations", 8)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Batch, accumulation and micro-batches of a generation batch, with ms-swift's defaults."""
        batch, accumulation = (self._number(name, 1) for name in SIZES[:2])
        return batch, accumulation, self._number(SIZES[2], accumulation)

    @property
    def per_rank(self) -> int:
        """Completions that a rank has of a generation batch."""
        batch, _, per_generation = self.sizes
        return batch * per_generation

    @property
    def held(self) -> int:
        """Completions of one prompt that every rank has of it."""
        return gcd(self.per_rank, self.group)

    @property
    def family(self) -> str:
        """Of its model: a tiny one of it is run."""
        return next(family for name, family in FAMILIES.items() if name in self.args["model"])

    def arguments(self, ranks: int) -> dict[str, Any]:
        """Of a tiny run on fewer ranks, where each holds as many completions, and as many of a prompt."""
        kept = {
            name: value
            for name, value in self.args.items()
            if name not in LEFT_OUT and not name.startswith(("use_vllm", "vllm_"))
        }
        sizes = dict(zip(SIZES, self.sizes, strict=True))
        return {**GRPO, **kept, **sizes, "num_generations": self.held * ranks, "max_steps": self.steps}

    @property
    def steps(self) -> int:
        """Optimizer steps of two generation batches; the first has the self-check."""
        _, accumulation, per_generation = self.sizes
        return 2 * max(1, per_generation // accumulation) * self._number("num_iterations", 1)


# What `swift_grpo_ext.testing.grpo_arguments` sets for tests, back to ms-swift's own defaults.
GRPO: dict[str, Any] = {"beta": None, "tuner_type": None}


def transformers_rows() -> list[Row]:
    """Those that do not run on Megatron."""
    found = [json.loads(line) for line in COMMANDS.read_text(encoding="utf-8").splitlines()]
    return [
        Row(one["script"], one["args"], int(one.get("env", {}).get("NPROC_PER_NODE", 1)))
        for one in found
        if one["engine"] == "transformers"
    ]


class MegatronRow:
    """One command of Megatron; sizes that it does not give have ms-swift's defaults."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.script = str(row["script"])
        self.engine = str(row["engine"])
        self.args: dict[str, str] = row["args"]
        split = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        ranks = int(row.get("env", {}).get("NPROC_PER_NODE", 1))
        for name in split:
            ranks //= self.number(name, 1)
        self.data_parallel = max(1, ranks)

    def number(self, name: str, default: int) -> int:
        """A size."""
        return int(self.args.get(name, default))

    @property
    def group(self) -> int:
        """Completions of a prompt (G)."""
        return self.number("num_generations", 8)

    @property
    def per_update(self) -> int:
        """Completions that a data-parallel rank has of an update."""
        return self.number("global_batch_size", 16) // self.data_parallel

    @property
    def updates(self) -> int:
        """Updates of a generation batch."""
        return self.number("steps_per_generation", 1)

    @property
    def prompts(self) -> int:
        """Prompts that a data-parallel rank has of a generation batch: ms-swift deals whole groups."""
        return self.per_update * self.updates // self.group

    @property
    def family(self) -> str:
        """Of its model."""
        return next(family for name, family in MEGATRON_FAMILIES.items() if name in self.args["model"])


def megatron_rows() -> list[MegatronRow]:
    """Those that run on Megatron, by Ray and without."""
    found = [json.loads(line) for line in COMMANDS.read_text(encoding="utf-8").splitlines()]
    return [MegatronRow(one) for one in found if one["engine"].startswith("megatron")]
