"""Why micro-batches have other sizes than the user typed: so that they hold completions of one prompt.

By default as much of a group as fits, by arithmetic and the least free memory of all ranks; that needs the
model, so the trainer asks for it. ``SWIFT_GRPO_EXT_GROUP_BATCH=1`` asks for whole groups whatever fits; that
is decided with the arguments, so that what cannot be cut ends before a model is loaded. Either way the same
completions are generated, and stepped on, as the user's sizes say.
"""

from collections.abc import Callable
from math import gcd
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from swift_grpo_ext.compat.refusals import world_size
from swift_grpo_ext.group.batch_sizes import SWITCH, BatchSizes, Cut, cuts, first_fitting, forwarded, grouped
from swift_grpo_ext.group.gpu_memory import (
    ASLEEP,
    COMMUNICATORS,
    WORKSPACES,
    gathered_bytes,
    gradient_bytes,
    optimizer_bytes,
)
from swift_grpo_ext.group.pack_memory import PackShape, TextSizes, fits, text_sizes
from swift_grpo_ext.losses import why_sizes_matter
from swift_grpo_ext.ms_swift.arguments import GRPOConfig
from swift_grpo_ext.ms_swift.shared import get_logger
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.features import why_not_shared
from swift_grpo_ext.trainer.host import Early

TOKENS_WITHOUT_GPU = 16_384  # completion tokens of a micro-batch
PROMPT = 2048  # tokens, where the template has no limit
_SIZES = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def cut_into_groups(args: GRPOConfig, settings: Settings) -> None:
    """Change the micro-batches of arguments that ms-swift has not read yet to parts of one group each.

    Raises:
        RefusedError: The completions of a step, or of a generation, cannot be cut like that.
    """
    batch = args.per_device_train_batch_size
    accumulation = args.gradient_accumulation_steps
    per_generation = args.steps_per_generation or accumulation
    if args.generation_batch_size:
        per_generation = args.generation_batch_size // (batch * world_size())
    before = BatchSizes(batch, accumulation, per_generation)
    after = grouped(before, args.num_generations, args.max_completion_length, settings.group_batch_tokens)
    if after == before:
        return
    _write(args, after)
    args.generation_batch_size = None  # which ms-swift refuses beside steps_per_generation
    depends = _depends(args)
    get_logger().info(f"swift-grpo-ext: {changed(before, after)}{f' ({depends})' if depends else ''}.")


def cut_by_groups(early: Early, settings: Settings) -> str:
    """Change the micro-batches in the arguments, if more of a group fits; log and return what, or why not."""
    line = "" if settings.group_batch is not None else _cut(early, settings)
    if line:
        get_logger().info(f"swift-grpo-ext: {line}.")
    return line


def _cut(early: Early, settings: Settings) -> str:
    args = early.args
    group = early.args.num_generations
    batch = args.per_device_train_batch_size
    accumulation = args.gradient_accumulation_steps
    before = BatchSizes(batch, accumulation, args.steps_per_generation)
    completions = batch * before.per_generation  # of a generation batch, on this rank
    if group == 1:
        most = max(2, completions)
        return f"--num_generations 1 leaves no prompt to share; {most} would forward 1 prompt, not {most}"
    if completions == 1:
        return alone(batch, group)
    stay = f"micro-batches stay {batch} x {accumulation}: "
    ways = cuts(before, group, gathers=_gathers(args))
    if not ways:
        return _what_divides(before, group, stay)
    if reason := _users_own(early) or why_not_shared(early, settings):
        return stay + reason
    fitting, how = _room(early, settings)
    chosen = agreed_max(first_fitting(ways, fitting), _device() or torch.device("cpu"))
    if chosen == len(ways):
        return f"{stay}no more of a group fits{how}" if before.batch % group else ""
    after = ways[chosen].sizes
    _write(args, after)
    why = "to share prompts" if before.batch % group else "so that weights are gathered less often"
    return (
        f"{changed(before, after)}, {why}{how}; logged clip ratios and entropy_max and _min are "
        f"theirs; {SWITCH}=0 keeps yours"
    )


def changed(before: BatchSizes, after: BatchSizes) -> str:
    """How the same completions are cut now."""
    return (
        f"micro-batches of {before.batch} x {before.accumulation} are now {after.batch} x "
        f"{after.accumulation}, the same completions per step"
    )


def _what_divides(sizes: BatchSizes, group: int, stay: str) -> str:
    """Which step could be cut into parts of a group, if this one cannot; empty if it is shared as it is."""
    completions = sizes.batch * sizes.per_generation
    steps = gcd(completions, group) // gcd(completions, group, sizes.batch)
    now = forwarded(sizes.batch, completions, group)
    if steps == 1 or now == forwarded(completions, completions, group):
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
    """Why the user's sizes are part of what is computed, or fixed elsewhere; empty if they are neither."""
    args = early.args
    if depends := _depends(args):
        return depends
    config = args.deepspeed if isinstance(args.deepspeed, dict) else {}
    fixed = next((name for name in _SIZES if isinstance(config.get(name), int)), "")
    return f"the DeepSpeed file fixes {fixed}" if fixed else ""


def _depends(args: GRPOConfig) -> str:
    """Why what is computed depends on the sizes of micro-batches, in a clause; empty if it does not."""
    return why_sizes_matter(
        args.loss_type,
        with_liger=args.use_liger_kernel,
        top_entropy_quantile=args.top_entropy_quantile,
    )


def _device() -> torch.device | None:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None


def _room(early: Early, settings: Settings) -> tuple[Callable[[Cut], bool], str]:
    """Whether a micro-batch of a cut fits on this rank, and what else is to be said of how that is known."""
    args = early.args
    device = _device()
    free = None if device is None or settings.group_batch_tokens else _free(early, device)
    sizes = None if free is None else text_sizes_of(early.template.get_base_model(early.model).config)
    if free is None or sizes is None:
        budget = settings.group_batch_tokens or TOKENS_WITHOUT_GPU
        unknown = "free memory cannot be read" if free is None else "its config names no sizes of the model"
        judged = device is not None and not settings.group_batch_tokens
        how = f" ({unknown}: at most {budget} completion tokens)" if judged else ""
        return lambda cut: cut.sizes.batch * args.max_completion_length <= budget, how
    shape = PackShape(
        sizes,
        early.template.max_length or PROMPT,
        args.max_completion_length,
        "lora" if _trains_little(early.model) else "full",
        bool(args.gradient_checkpointing),
        spare=_stage(args) < 3,
    )
    return lambda cut: fits(shape, cut.sizes.batch, cut.prompts, free), ""


def text_sizes_of(config: PretrainedConfig) -> TextSizes | None:
    """Sizes of the language model; None where its config does not name them."""
    text = config.get_text_config()
    # What a family calls otherwise (GPT-2's ``n_embd``) is there under the usual name, too.
    usual = {name: getattr(text, name, None) for name in text.attribute_map}
    try:
        return text_sizes({**text.to_dict(), **usual})
    except (LookupError, ArithmeticError, TypeError):
        return None


def _free(early: Early, device: torch.device) -> float | None:
    """Bytes that will be free beside optimizer, gradients and a colocated vLLM; None if unreadable."""
    args = early.args
    if (free := free_beside_vllm(args, device)) is None:
        return None
    ranks = max(1, early.args.world_size)
    stage = _stage(args)
    parameters = list(early.model.parameters())
    # ZeRO-3 has replaced the elements of a parameter, and tells how many they were.
    trained = sum(getattr(p, "ds_numel", p.numel()) for p in parameters if p.requires_grad)
    absent = sum(p.numel() * p.element_size() for p in parameters if p.device.type != "cuda")
    sizes = [getattr(p, "ds_numel", p.numel()) for p in parameters]
    states = gradient_bytes(trained, stage, ranks) + optimizer_bytes(trained, stage, ranks)
    return free - states - absent - gathered_bytes(sum(sizes), max(sizes), stage)


def free_beside_vllm(args: Any, device: torch.device | None = None) -> float | None:
    """Bytes that will be free beside what libraries and a colocated vLLM take; None if unreadable."""
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:
        return None
    taken = COMMUNICATORS[1] + WORKSPACES
    if args.use_vllm and args.vllm_mode == "colocate":
        taken += ASLEEP[1] if args.sleep_level else args.vllm_gpu_memory_utilization * total
    return float(free - taken)


def _trains_little(model: PreTrainedModel) -> bool:
    """Adapters are trained, and not the weights below them."""
    counts = [(p.requires_grad, getattr(p, "ds_numel", p.numel())) for p in model.parameters()]
    return sum(size for trains, size in counts if trains) < 0.2 * sum(size for _, size in counts)


def _gathers(args: GRPOConfig) -> bool:
    """Whether a micro-batch gathers the weights of all ranks."""
    return _stage(args) == 3 or bool(args.fsdp)


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
            config[_SIZES[0]] = sizes.batch
            config[_SIZES[1]] = sizes.accumulation
    if plugin is not None and getattr(plugin, "gradient_accumulation_steps", None) is not None:
        plugin.gradient_accumulation_steps = sizes.accumulation
