"""Micro-batches that hold as much of a group as fits, by arithmetic and the least free memory of all ranks.

The same completions are generated, and stepped on, as the user's sizes say.
"""

from collections.abc import Callable
from math import gcd

import torch
from swift.rlhf_trainers.arguments import GRPOConfig
from swift.utils import get_logger
from transformers import PreTrainedModel

from swift_grpo_ext.group.batch_sizes import SWITCH, BatchSizes, Cut, cuts, first_fitting, forwarded
from swift_grpo_ext.group.gpu_memory import (
    ASLEEP,
    COMMUNICATORS,
    WORKSPACES,
    gathered_bytes,
    gradient_bytes,
    optimizer_bytes,
)
from swift_grpo_ext.group.pack_memory import PackShape, fits, text_sizes
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.features import why_not_shared
from swift_grpo_ext.trainer.host import Early
from swift_grpo_ext.trainer.loss_fixes import OF_MICRO_BATCH

TOKENS_WITHOUT_GPU = 16_384  # completion tokens of a micro-batch
PROMPT = 2048  # tokens, where the template has no limit
_SIZES = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def cut_by_groups(early: Early, settings: Settings) -> str:
    """Change the micro-batches in the arguments, if more of a group fits; log and return what, or why not."""
    line = "" if settings.group_batch is not None else _cut(early, settings)
    if line:
        get_logger().info(f"swift-grpo-ext: {line}.")
    return line


def _cut(early: Early, settings: Settings) -> str:
    args, group = early.args, early.args.num_generations
    batch, accumulation = args.per_device_train_batch_size, args.gradient_accumulation_steps
    before = BatchSizes(batch, accumulation, args.steps_per_generation)
    held = batch * before.per_generation
    if group == 1:
        most = max(2, held)
        return f"--num_generations 1 leaves no prompt to share; {most} would forward 1 prompt, not {most}"
    if held == 1:
        return alone(batch, group)
    stay = f"micro-batches stay {batch} x {accumulation}: "
    ways = cuts(before, group)
    if not ways:
        return _what_divides(before, group, stay)
    if reason := _users_own(early) or why_not_shared(early, settings):
        return stay + reason
    fitting, how = _room(early, settings)
    chosen = agreed_max(first_fitting(ways, fitting), _device() or torch.device("cpu"))
    if chosen == len(ways):
        return f"{stay}no more of a group fits{how}"
    after = ways[chosen].sizes
    _write(args, after)
    return (
        f"micro-batches of {batch} x {accumulation} are now {after.batch} x "
        f"{after.accumulation}, the same completions per step, to share prompts{how}; logged clip "
        f"ratios and entropy_max and _min are theirs; {SWITCH}=0 keeps yours"
    )


def _what_divides(sizes: BatchSizes, group: int, stay: str) -> str:
    """Which step could be cut into parts of a group, if this one cannot; empty if it is shared as it is."""
    held = sizes.batch * sizes.per_generation
    steps = gcd(held, group) // gcd(held, group, sizes.batch)
    if steps == 1 or forwarded(sizes.batch, held, group) == forwarded(held, held, group):
        return ""
    return (
        f"{stay}{sizes.batch * sizes.accumulation} completions per step cannot be cut into parts of a group "
        f"of {group}; --gradient_accumulation_steps {steps} or a multiple of it could"
    )


def alone(batch: int, group: int) -> str:
    """What is said where each rank has one completion of a prompt."""
    return (
        "each rank has one completion of a prompt, so none is shared; "
        f"--gradient_accumulation_steps {group // gcd(batch, group)} would give it all {group}, "
        f"and forward 1 prompt and its images, not {group}"
    )


def _users_own(early: Early) -> str:
    """Why the user's sizes are part of what is computed, or fixed elsewhere."""
    args = early.args
    if args.loss_type == "bnpo" or args.top_entropy_quantile < 1.0:
        which = "loss_type bnpo" if args.loss_type == "bnpo" else "top_entropy_quantile"
        return f"{which} is defined per micro-batch"
    if args.use_liger_kernel and args.loss_type in OF_MICRO_BATCH:
        return f"loss_type {args.loss_type} of liger is defined per micro-batch"
    config = args.deepspeed if isinstance(args.deepspeed, dict) else {}
    fixed = next((name for name in _SIZES if isinstance(config.get(name), int)), "")
    return f"the DeepSpeed file fixes {fixed}" if fixed else ""


def _device() -> torch.device | None:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None


def _room(early: Early, settings: Settings) -> tuple[Callable[[Cut], bool], str]:
    """Whether a micro-batch of a cut fits on this rank, and what else is to be said of how that is known."""
    args, device = early.args, _device()
    free = None if device is None or settings.group_batch_tokens else _free(early, device)
    if free is None:
        budget = settings.group_batch_tokens or TOKENS_WITHOUT_GPU
        unread = device is not None and not settings.group_batch_tokens
        how = f" (free memory cannot be read: at most {budget} completion tokens)" if unread else ""
        return lambda cut: cut.sizes.batch * args.max_completion_length <= budget, how
    base = early.template.get_base_model(early.model)
    shape = PackShape(
        text_sizes(base.config.get_text_config()),
        early.template.max_length or PROMPT,
        args.max_completion_length,
        "lora" if _trains_little(early.model) else "full",
        bool(args.gradient_checkpointing),
        spare=_stage(args) < 3,
    )
    return lambda cut: fits(shape, cut.sizes.batch, cut.prompts, free), ""


def _free(early: Early, device: torch.device) -> float | None:
    """Bytes that will be free beside optimizer, gradients and a colocated vLLM; None if unreadable."""
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:
        return None
    args, ranks = early.args, max(1, early.args.world_size)
    stage = _stage(args)
    parameters = list(early.model.parameters())
    # ZeRO-3 has replaced the elements of a parameter, and tells how many they were.
    trained = sum(getattr(p, "ds_numel", p.numel()) for p in parameters if p.requires_grad)
    absent = sum(p.numel() * p.element_size() for p in parameters if p.device.type != "cuda")
    sizes = [getattr(p, "ds_numel", p.numel()) for p in parameters]
    states = gradient_bytes(trained, stage, ranks) + optimizer_bytes(trained, stage, ranks)
    later = states + absent + COMMUNICATORS[1] + WORKSPACES + gathered_bytes(sum(sizes), max(sizes), stage)
    if args.use_vllm and args.vllm_mode == "colocate":
        later += ASLEEP[1] if args.sleep_level else args.vllm_gpu_memory_utilization * total
    return free - later


def _trains_little(model: PreTrainedModel) -> bool:
    """Adapters are trained, and not the weights below them."""
    counts = [(p.requires_grad, getattr(p, "ds_numel", p.numel())) for p in model.parameters()]
    return sum(size for trains, size in counts if trains) < 0.2 * sum(size for _, size in counts)


def _stage(args: GRPOConfig) -> int:
    config = args.deepspeed if isinstance(args.deepspeed, dict) else {}
    stage = config.get("zero_optimization", {}).get("stage", 0)
    return stage if stage in (1, 2, 3) else 0


def _write(args: GRPOConfig, sizes: BatchSizes) -> None:
    """Into the arguments, and into the DeepSpeed configuration that was filled from them."""
    args.per_device_train_batch_size = sizes.batch
    args.gradient_accumulation_steps = sizes.accumulation
    args.steps_per_generation = sizes.per_generation
    plugin = getattr(args, "deepspeed_plugin", None)
    holders = (getattr(args, "hf_deepspeed_config", None), getattr(plugin, "hf_ds_config", None))
    configs = [holder.config for holder in holders if holder is not None]
    for config in [*configs, getattr(plugin, "deepspeed_config", None) or {}]:
        if isinstance(config.get(_SIZES[0]), int):
            config[_SIZES[0]], config[_SIZES[1]] = sizes.batch, sizes.accumulation
    if plugin is not None and getattr(plugin, "gradient_accumulation_steps", None) is not None:
        plugin.gradient_accumulation_steps = sizes.accumulation
