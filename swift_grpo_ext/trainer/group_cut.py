"""Micro-batches of transformers' trainer that hold completions of one prompt: its sizes, and its memory.

As much of a group as fits, by arithmetic and the least free memory of all ranks. That needs the model, so the
trainer asks for it.
"""

from typing import Any

import torch

from swift_grpo_ext.group.cut import BatchSizes, Memory, cut
from swift_grpo_ext.group.gpu_memory import (
    ASLEEP,
    COMMUNICATORS,
    WORKSPACES,
    gathered_bytes,
    gradient_bytes,
    optimizer_bytes,
)
from swift_grpo_ext.group.pack_memory import PackShape, text_sizes_of, way_trained
from swift_grpo_ext.losses import why_sizes_matter
from swift_grpo_ext.ms_swift.arguments import GRPOConfig
from swift_grpo_ext.ms_swift.shared import get_logger
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.features import why_not_shared
from swift_grpo_ext.trainer.host import Early

PROMPT = 2048  # tokens, where the template has no limit
_SIZES = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def cut_by_groups(early: Early, settings: Settings) -> str:
    """Change the micro-batches in the arguments, if more of a group fits; log and return what, or why not."""
    args = early.args
    sizes = BatchSizes(
        args.per_device_train_batch_size, args.gradient_accumulation_steps, args.steps_per_generation
    )
    if not settings.group_batch:
        return ""
    chosen, line = cut(
        sizes,
        args.num_generations,
        lambda: _memory(early),
        why_not=lambda: _users_own(early) or why_not_shared(early, settings),
        more="--gradient_accumulation_steps {}".format,
        gathers=_stage(args) == 3 or bool(args.fsdp),
    )
    if chosen != sizes:
        _write(args, chosen)
    if line:
        get_logger().info(f"swift-grpo-ext: {line}.")
    return line


def _users_own(early: Early) -> str:
    """Reason why the user's sizes enter the computation or are fixed elsewhere; empty if neither."""
    args = early.args
    depends = why_sizes_matter(
        args.loss_type,
        with_liger=args.use_liger_kernel,
        top_entropy_quantile=args.top_entropy_quantile,
    )
    config = args.deepspeed if isinstance(args.deepspeed, dict) else {}
    fixed = next((name for name in _SIZES if isinstance(config.get(name), int)), "")
    return depends or (f"the DeepSpeed file fixes {fixed}" if fixed else "")


def _memory(early: Early) -> Memory:
    """Memory for a micro-batch, on the rank that has least. Every rank comes here: a collective."""
    args = early.args
    free = least(_free(early, args.device) if args.device.type != "cpu" else None, args.device)
    sizes = text_sizes_of(early.template.get_base_model(early.model).config)
    if free is None or sizes is None:
        return Memory(args.max_completion_length)
    shape = PackShape(
        sizes,
        early.template.max_length or PROMPT,
        args.max_completion_length,
        way_trained(early.model.parameters()),
        bool(args.gradient_checkpointing),
        spare=_stage(args) < 3,
    )
    return Memory(args.max_completion_length, free, shape)


def least(free: float | None, device: torch.device) -> float | None:
    """The least free bytes of all ranks, None where one of them does not know: a collective."""
    unknown = 1  # above all others, which are 0 or less
    highest = agreed_max(unknown if free is None else -max(0, int(free)), device)
    return None if highest == unknown else float(-highest)


def _free(early: Early, device: torch.device) -> float | None:
    """Bytes that will be free beside optimizer, gradients and a colocated vLLM; None if unreadable."""
    args = early.args
    if (free := free_beside_vllm(args, device)) is None:
        return None
    ranks = max(1, args.world_size)
    stage = _stage(args)
    parameters = list(early.model.parameters())
    # ZeRO-3 has replaced the elements of a parameter, and tells how many they were.
    trained = sum(getattr(p, "ds_numel", p.numel()) for p in parameters if p.requires_grad)
    absent = sum(p.numel() * p.element_size() for p in parameters if p.device.type != device.type)
    sizes = [getattr(p, "ds_numel", p.numel()) for p in parameters]
    states = gradient_bytes(trained, stage, ranks) + optimizer_bytes(trained, stage, ranks)
    return free - states - absent - gathered_bytes(sum(sizes), max(sizes), stage)


def free_beside_vllm(args: Any, device: torch.device | None = None) -> float | None:
    """Bytes that will be free beside what libraries and a colocated vLLM take; None if unreadable."""
    try:
        free, total = torch.get_device_module(device or "cuda").mem_get_info(device)
    except (RuntimeError, AttributeError):
        return None
    taken = COMMUNICATORS[1] + WORKSPACES
    if args.use_vllm and args.vllm_mode == "colocate":
        taken += ASLEEP[1] if args.sleep_level else args.vllm_gpu_memory_utilization * total
    return float(free - taken)


def _stage(args: GRPOConfig) -> int:
    config = args.deepspeed if isinstance(args.deepspeed, dict) else {}
    stage = config.get("zero_optimization", {}).get("stage", 0)
    return stage if stage in (1, 2, 3) else 0


def _write(args: GRPOConfig, sizes: BatchSizes) -> None:
    """Write sizes into the arguments and the DeepSpeed configuration that was filled from them."""
    args.per_device_train_batch_size = sizes.batch
    args.gradient_accumulation_steps = sizes.accumulation
    args.steps_per_generation = sizes.per_generation
    plugin = getattr(args, "deepspeed_plugin", None)
    if plugin is not None:
        plugin.gradient_accumulation_steps = sizes.accumulation
        # The same dictionary as in ``hf_deepspeed_config``.
        if isinstance(plugin.deepspeed_config.get(_SIZES[0]), int):
            plugin.deepspeed_config.update(zip(_SIZES, (sizes.batch, sizes.accumulation), strict=True))
