"""Micro-batches of Megatron's trainer that hold completions of one prompt: its sizes, and its memory."""

import torch
from megatron.core import mpu

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.group.cut import BatchSizes, Memory, cut
from swift_grpo_ext.group.pack_memory import PackShape, text_sizes_of
from swift_grpo_ext.losses import loss_named, why_sizes_matter
from swift_grpo_ext.megatron.host import MegatronHost
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.group_cut import PROMPT, free_beside_vllm, least

ADAM = 8  # bytes of a trained parameter's two moments, made at the first step, over data-parallel ranks


def cut_by_groups(host: MegatronHost, settings: Settings, shared: bool) -> tuple[BatchSizes, str]:
    """Micro-batches with as much of a group as fits, if prompts are ``shared``; and the line to log."""
    args = host.args
    accumulation = args.num_microbatches
    sizes = BatchSizes(args.micro_batch_size, accumulation, accumulation * host.steps_per_generation)
    if not settings.group_batch or not shared:
        return sizes, ""
    ranks = args.global_batch_size // (accumulation * args.micro_batch_size)
    return cut(
        sizes,
        host.num_generations,
        lambda: _memory(host),
        why_not=lambda: _users_own(host),
        more=lambda steps: f"--global_batch_size {steps * args.micro_batch_size * ranks}",
        stages=args.pipeline_model_parallel_size,
    )


def refuse_cut_groups(host: MegatronHost) -> None:
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


def _users_own(host: MegatronHost) -> str:
    """Reason why the user's sizes are part of what is computed; empty if they are not."""
    if loss_named(host.loss_type).whole_groups:
        return f"loss_type {host.loss_type} compares the groups of a micro-batch"
    quantile = host.args.top_entropy_quantile
    return why_sizes_matter(host.loss_type, with_liger=False, top_entropy_quantile=quantile)


def _memory(host: MegatronHost) -> Memory:
    """Memory for a micro-batch, on the rank that has least. Every rank comes here: a collective."""
    args = host.args
    free = least(_free(host), host.device)
    text = text_sizes_of(host.template.config)
    if free is None or text is None:
        return Memory(args.max_completion_length)
    shape = PackShape(
        text,
        host.template.max_length or PROMPT,
        args.max_completion_length,
        "full" if args.tuner_type == "full" else "lora",
        args.recompute_granularity == "full",
        spare=False,
    )
    # Tensor parallelism divides what a layer holds; of a pipeline each stage holds its layers for all stages.
    return Memory(args.max_completion_length, free * args.tensor_model_parallel_size, shape)


def _free(host: MegatronHost) -> float | None:
    """Bytes that will be free beside the optimizer and a colocated vLLM; None without a GPU that tells."""
    free = free_beside_vllm(host.args) if torch.cuda.is_available() else None
    trained = sum(p.numel() for model in host.unwrapped_models for p in model.parameters() if p.requires_grad)
    return None if free is None else free - ADAM * trained / mpu.get_data_parallel_world_size()
