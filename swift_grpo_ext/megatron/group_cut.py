"""Micro-batches that hold as much of a group as fits, with Megatron.

The same prompts are drawn, the same completions generated, and stepped on, as the user's sizes say.
"""

import torch
from megatron.core import mpu

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.group.batch_sizes import SWITCH, BatchSizes, Cut, cuts, first_fitting
from swift_grpo_ext.group.pack_memory import PackShape, fits
from swift_grpo_ext.losses import loss_named, why_sizes_matter
from swift_grpo_ext.megatron.host import Host
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.group_cut import (
    PROMPT,
    TOKENS_WITHOUT_GPU,
    changed,
    free_beside_vllm,
    text_sizes_of,
)

ADAM = 8  # bytes of a trained parameter's two moments, made at the first step, over data-parallel ranks


def cut_by_groups(host: Host, settings: Settings, shared: bool) -> tuple[BatchSizes, str]:
    """Micro-batches with as much of a group as fits, if prompts are ``shared``; what is to be said of it.

    Raises:
        RefusedError: Whole groups are asked for (``SWIFT_GRPO_EXT_GROUP_BATCH=1``), and there is no way.
    """
    sizes, line = _cut(host, settings, shared)
    if settings.group_batch and sizes.batch % host.num_generations:
        raise RefusedError(
            f"micro-batches of {sizes.batch} completions hold no whole group of {host.num_generations}",
            where=f"{SWITCH}=1",
            fix=line or "a larger --global_batch_size",
        )
    return sizes, line


def _cut(host: Host, settings: Settings, shared: bool) -> tuple[BatchSizes, str]:
    args = host.args
    group = host.num_generations
    accumulation = args.num_microbatches
    before = BatchSizes(args.micro_batch_size, accumulation, accumulation * host.steps_per_generation)
    if settings.group_batch is False or not shared or group == 1:
        return before, ""
    stages = args.pipeline_model_parallel_size
    ways = [cut for cut in cuts(before, group) if cut.sizes.accumulation >= stages]
    if not ways:
        return before, ""
    reason = _users_own(host)
    fitting = first_fitting(ways, lambda cut: bool(settings.group_batch) or _fits(host, settings, cut))
    best = len(ways) if reason else agreed_max(fitting, host.device)
    if best == len(ways):
        why = reason or "no more of a group fits"
        return before, f"micro-batches stay {before.batch} x {accumulation}: {why}"
    after = ways[best].sizes
    how = changed(before, after)
    return after, f"{how}, to share prompts; logged clip ratios are theirs; {SWITCH}=0 keeps yours"


def refuse_cut_groups(host: Host) -> None:
    """Refuse a loss that compares the completions of a group where micro-batches hold parts of groups.

    Raises:
        RefusedError: The first rollout would be made, then the run would end.
    """
    if loss_named(host.loss_type).whole_groups and host.micro_batch_size % host.num_generations:
        raise RefusedError(
            f"loss_type {host.loss_type} compares the completions of a group, and micro-batches of "
            f"{host.micro_batch_size} hold parts of groups of {host.num_generations}",
            where=f"--micro_batch_size {host.micro_batch_size}",
            fix=f"--micro_batch_size with a multiple of {host.num_generations}",
        )


def _users_own(host: Host) -> str:
    """Why the user's sizes are part of what is computed."""
    if loss_named(host.loss_type).whole_groups:
        return f"loss_type {host.loss_type} compares the groups of a micro-batch"
    quantile = host.args.top_entropy_quantile
    return why_sizes_matter(host.loss_type, with_liger=False, top_entropy_quantile=quantile)


def _fits(host: Host, settings: Settings, cut: Cut) -> bool:
    args = host.args
    free = None if settings.group_batch_tokens else _free(host)
    text = text_sizes_of(host.template.config)
    if free is None or text is None:
        budget = settings.group_batch_tokens or TOKENS_WITHOUT_GPU
        return bool(cut.sizes.batch * args.max_completion_length <= budget)
    shape = PackShape(
        text,
        host.template.max_length or PROMPT,
        args.max_completion_length,
        "full" if args.tuner_type == "full" else "lora",
        args.recompute_granularity == "full",
        spare=False,
    )
    # Tensor parallelism divides what a layer holds; of a pipeline each stage holds its layers for all stages.
    return fits(shape, cut.sizes.batch, cut.prompts, free * args.tensor_model_parallel_size)


def _free(host: Host) -> float | None:
    """Bytes that will be free beside the optimizer and a colocated vLLM; None without a GPU that tells."""
    free = free_beside_vllm(host.args) if torch.cuda.is_available() else None
    trained = sum(p.numel() for model in host.unwrapped_models for p in model.parameters() if p.requires_grad)
    return None if free is None else free - ADAM * trained / mpu.get_data_parallel_world_size()
