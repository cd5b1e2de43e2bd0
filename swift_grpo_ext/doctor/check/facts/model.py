"""The trained model and how DeepSpeed splits it: the model's sizes and family, DeepSpeed's file."""

from contextlib import suppress
from functools import lru_cache
from typing import Any

from swift_grpo_ext.doctor.check.facts import environment, files
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.doctor.plan.models import find_config, shape_by_config
from swift_grpo_ext.doctor.plan.setting import MOST_PIXELS, ModelShape
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.models.families import VisionFamily, family_of

HPZ = "zero_hpz_partition_size"


@lru_cache(maxsize=16)
def shape(model: str) -> ModelShape | None:
    """Sizes of a model by folder or name; None without a configuration of it."""
    with suppress(SwiftGrpoExtError):
        config = find_config(model)
        return shape_by_config(config) if config else None
    return None


def family(run: Run) -> VisionFamily | None:
    """The model's family; None if this package does not describe it."""
    with suppress(SwiftGrpoExtError):
        config = find_config(run.model) or {}
        return family_of(str(config.get("model_type") or run.arguments.model_type or ""))
    return None


def lacks(run: Run, feature: Any) -> str:
    """The reason why the model's family lacks a feature; empty if it has it."""
    described = family(run)
    return described.lacks.get(feature, "") if described else ""


def limits_pixels(run: Run) -> bool:
    """True if the launch limits the size of an image."""
    return "MAX_PIXELS" in run.environ or bool(run.arguments.max_pixels)


def max_pixels(run: Run) -> int:
    """Pixels of one image: the smaller of MAX_PIXELS and --max_pixels, else the families' 12.8 M."""
    limits = [environment.number(run.environ, "MAX_PIXELS", 0), run.arguments.max_pixels or 0]
    return min((limit for limit in limits if limit), default=MOST_PIXELS)


@lru_cache(maxsize=16)
def deepspeed(run: Run) -> dict[str, Any] | str | None:
    """The DeepSpeed configuration; a string says why it cannot be read."""
    value = run.arguments.deepspeed
    if not value or run.megatron:
        return None
    config = value
    if not isinstance(value, dict):
        config = files.deepspeed(str(value), run.find, may_be_made=run.command.makes_files)
    size = decided(run.arguments.zero_hpz_partition_size)
    if isinstance(config, dict) and size is not None:
        config["zero_optimization"] = {**_table(config.get("zero_optimization")), HPZ: size}
    return config


def block(run: Run, name: str) -> dict[str, Any]:
    """A block of the DeepSpeed configuration; empty if it is missing or not a table."""
    return _table(_table(deepspeed(run)).get(name))


def zero(run: Run) -> dict[str, Any]:
    """The ZeRO block."""
    return block(run, "zero_optimization")


def stage(run: Run) -> int:
    """ZeRO stage; 0 if it is missing or not a whole number."""
    number = zero(run).get("stage", 0)
    return number if type(number) is int else 0


def offloads(run: Run, block: str) -> bool:
    """True if ``block``, ``offload_optimizer`` or ``offload_param``, moves its tensors off the GPU."""
    return bool(_table(zero(run).get(block)).get("device", "none") != "none")


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
