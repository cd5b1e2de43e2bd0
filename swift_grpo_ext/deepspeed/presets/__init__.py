"""The preset files beside this module, and the hook that lets the host find them by name."""

import json
from functools import wraps
from pathlib import Path
from typing import Any

from swift_grpo_ext.errors import SwiftGrpoExtError, nearest
from swift_grpo_ext.versions import require

PREFIX = "ext_"


def available() -> dict[str, Path]:
    """Preset names and their JSON files."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob(f"{PREFIX}*.json"))}


def resolve(name: str) -> str:
    """Path of a preset's JSON file; anything that does not start with ``ext_`` is returned as it is.

    Raises:
        SwiftGrpoExtError: No preset has this name; the nearest one is named.
    """
    if not name.startswith(PREFIX):
        return name
    presets = available()
    if name not in presets:
        raise SwiftGrpoExtError(
            f"unknown DeepSpeed preset {name!r}, did you mean {nearest(name, presets)!r}?",
            where=f"--deepspeed {name}",
            fix=f"presets: {', '.join(presets)}",
        )
    return str(presets[name])


def load(name: str) -> dict[str, object]:
    """A preset's configuration, ``"auto"`` values as they stand in the file."""
    config: dict[str, Any] = json.loads(Path(resolve(name)).read_text(encoding="utf-8"))
    return config


def fill_hpz(config: dict[str, Any] | str | None, ranks_per_node: int) -> None:
    """Give ``zero_hpz_partition_size: "auto"`` the ranks of one node.

    DeepSpeed drops ``"auto"`` without a word and would train without the secondary partition.
    """
    zero = config.get("zero_optimization") if isinstance(config, dict) else None
    if isinstance(zero, dict) and zero.get("zero_hpz_partition_size") == "auto":
        zero["zero_hpz_partition_size"] = ranks_per_node


def hook_into_host() -> None:
    """Resolve preset names before the host's table sees them, and fill in what the node decides."""
    from swift.arguments.sft_args import SftArguments

    host_init = SftArguments._init_deepspeed
    if getattr(host_init, "_swift_grpo_ext", False):
        return

    @wraps(host_init)
    def _init_deepspeed(arguments: SftArguments) -> None:
        if arguments.deepspeed:
            require("deepspeed")  # older ones silently train on wrong gradients
        if isinstance(arguments.deepspeed, str):
            arguments.deepspeed = resolve(arguments.deepspeed)
        host_init(arguments)
        fill_hpz(arguments.deepspeed, arguments.local_world_size)

    _init_deepspeed._swift_grpo_ext = True  # type: ignore[attr-defined]
    SftArguments._init_deepspeed = _init_deepspeed
