"""Everything of a launch that the rules look at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.doctor.check.arguments import Arguments
from swift_grpo_ext.doctor.check.launch import PLUGIN, Launch
from swift_grpo_ext.doctor.plan.catalogue import find_config
from swift_grpo_ext.doctor.plan.shape import ModelShape, shape_of
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.models.facts import VisionFacts, facts_for

HOST_PRESETS = ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")


@dataclass(frozen=True)
class Run:
    """One ``swift rlhf`` command as preflight sees it.

    Attributes:
        arguments: Its arguments.
        environ: The variables that it sees.
        versions: Installed releases by distribution; None for those that are missing.
        gpu_memory: GiB of one GPU; 0 if unknown.
        device: Name of the GPU; empty if unknown.
        launch: The script that it stands in, if there is one.
        folder: What relative paths are relative to.
    """

    arguments: Arguments
    environ: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str | None] = field(default_factory=dict)
    gpu_memory: float = 0
    device: str = ""
    launch: Launch | None = None
    folder: Path = Path(".")

    @property
    def ranks_per_node(self) -> int:
        """Training processes of one node."""
        return _number(self.environ.get("NPROC_PER_NODE") or self.environ.get("LOCAL_WORLD_SIZE"))

    @property
    def nodes(self) -> int:
        """Machines."""
        return _number(self.environ.get("NNODES"))

    @property
    def ranks(self) -> int:
        """Training processes of all nodes."""
        return self.ranks_per_node * self.nodes

    @property
    def full(self) -> bool:
        """Full-parameter training."""
        return bool(self.arguments.tuner_type == "full")

    @property
    def has_plugin(self) -> bool:
        """Our plugin file is on the command line."""
        files = self.arguments.external_plugins or []
        return any(file == PLUGIN or _is_ours(file) for file in files)

    @property
    def steps_per_generation(self) -> int:
        """Micro-batches of one generation batch, from either way to say it."""
        args = self.arguments
        if args.generation_batch_size and not args.steps_per_generation:
            return max(1, args.generation_batch_size // (args.per_device_train_batch_size * self.ranks))
        return int(args.steps_per_generation or args.gradient_accumulation_steps)

    @cached_property
    def shape(self) -> ModelShape | None:
        """Sizes of the model; None where no configuration is at hand."""
        try:
            config = find_config(str(self.arguments.model or ""))
            return shape_of(config) if config else None
        except SwiftGrpoExtError:
            return None

    @cached_property
    def facts(self) -> VisionFacts | None:
        """Facts of the model's family; None for one that is not described."""
        try:
            config = find_config(str(self.arguments.model or ""))
        except SwiftGrpoExtError:
            return None
        return facts_for(str((config or {}).get("model_type") or self.arguments.model_type or ""))

    @cached_property
    def deepspeed(self) -> dict[str, Any] | str | None:
        """The DeepSpeed configuration; a string says why it cannot be read."""
        value = self.arguments.deepspeed
        if not value:
            return None
        config = value if isinstance(value, dict) else _read_deepspeed(str(value), self.folder)
        size = self.arguments.zero_hpz_partition_size
        if isinstance(config, dict) and size is not None:
            config["zero_optimization"] = {
                **(config.get("zero_optimization") or {}),
                "zero_hpz_partition_size": size,
            }
        return config

    @property
    def max_pixels(self) -> int:
        """Pixels of one image: the smaller of MAX_PIXELS and --max_pixels, else the families' 12.8 M."""
        limits = [_number(self.environ.get("MAX_PIXELS"), 0), self.arguments.max_pixels or 0]
        return min((limit for limit in limits if limit), default=16384 * 28 * 28)


def _read_deepspeed(value: str, folder: Path) -> dict[str, Any] | str:
    import swift

    if value in HOST_PRESETS:
        path = Path(swift.__file__).parent / "config" / f"{value}.json"
    elif value.startswith(presets.PREFIX):
        try:
            path = Path(presets.resolve(value))
        except SwiftGrpoExtError as error:
            return f"{error.what} {error.mend}"
    else:
        path = Path(value) if Path(value).is_absolute() else folder / value
    try:
        text = path.read_text(encoding="utf-8") if len(value) < 4096 and path.is_file() else value
        config = json.loads(text)
    except (ValueError, OSError) as error:
        return f"neither a preset, nor a file, nor JSON: {error}"
    return config if isinstance(config, dict) else "no JSON object"


def _number(text: str | None, default: int = 1) -> int:
    return int(text) if text and text.isdigit() else default


def _is_ours(file: str) -> bool:
    path = Path(file)
    return path.name in ("all.py",) or path.name.startswith("ext_")
