"""Why each key of a preset has its value: the table behind ``docs/deepspeed-presets.md``.

The values are in ``presets/*.json`` alone; this module says why, and a test holds that each is explained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from swift_grpo_ext.deepspeed import presets

_DS = "https://github.com/deepspeedai/DeepSpeed"
_SWIFT = "https://github.com/modelscope/ms-swift"


@dataclass(frozen=True)
class Reason:
    """Why a key has its value."""

    why: str  # one or two sentences
    taught_by: tuple[str, ...] = ()  # reports and changes that taught it


# What each preset is for, in the order of the memory it saves.
PURPOSE: dict[str, str] = {
    "ext_zero1": "LoRA of models that fit on one GPU: only optimizer states are sharded, no weight travels.",
    "ext_zero2": "Full training of models whose weights fit on one GPU: gradients are sharded too.",
    "ext_zero3": "Weights sharded as well: 32B and 72B, or full training of 7B on 8 GPUs.",
    "ext_zero3_hpz": "ZeRO-3 over several nodes: weights are gathered inside the node, at the price of a "
    "second 16-bit copy per node. On one node it only costs memory.",
    "ext_zero3_offload_optimizer": "Full training when the optimizer states do not fit: they and the step go "
    "to the CPU, weights stay on the GPUs. No use for LoRA, whose optimizer is small.",
    "ext_zero3_offload": "Last resort: weights in CPU memory as well; each forward and backward reads all of "
    "them over PCIe.",
}

REASONS: dict[str, Reason] = {
    "bf16.enabled": Reason(
        "Filled from `--torch_dtype`; a fixed value that differs is refused by transformers."
    ),
    "fp16.enabled": Reason("Filled from `--torch_dtype`. fp16 cures none of the reported crashes (A5)."),
    "zero_optimization.stage": Reason(
        "The name of the preset. There is no ext_zero0: in bf16 it divided gradients by 65536 before 0.18.6 "
        "(B11). There is no ext_zero2_offload: up to 0.18.9 it threw away all micro-batches but the "
        "first and the last (B1).",
        (f"{_DS}/issues/7837", f"{_DS}/pull/6550", f"{_DS}/pull/7967", f"{_DS}/pull/7981"),
    ),
    "zero_optimization.overlap_comm": Reason(
        "Off. The reduction stream read gradient buffers while they were rewritten, in several releases and "
        "in several ways, up to NaN at the first step; where it was safe it overlapped nothing. In GRPO most "
        "of a step is generation, so the few per cent that it can win are of the smaller part.",
        (f"{_DS}/issues/5545", f"{_DS}/issues/7804", f"{_DS}/issues/8061"),
    ),
    "zero_optimization.contiguous_gradients": Reason(
        "Gradients are copied into one buffer as they come, so that memory beside vLLM does not fragment."
    ),
    "zero_optimization.reduce_scatter": Reason("Each rank receives only the gradients that it owns."),
    "zero_optimization.reduce_bucket_size": Reason(
        "5e7 elements are 100 MB in bf16, enough to fill NVLink. The buffer is allocated whole, whatever is "
        "trained: 1 GB at DeepSpeed's 5e8, for LoRA gradients of 80 MB. A number, not `auto`, which is "
        "hidden_size squared: the same for every model."
    ),
    "zero_optimization.allgather_partitions": Reason(
        "Updated weights come back in one all-gather per bucket instead of one broadcast per rank."
    ),
    "zero_optimization.allgather_bucket_size": Reason(
        "As reduce_bucket_size, for the weights after the step."
    ),
    "zero_optimization.round_robin_gradients": Reason(
        "Off. It spreads copies to the CPU over the ranks, so it pays only with optimizer offload and many "
        "micro-batches, and DeepSpeed turned it off by default after it broke runs.",
        (f"{_DS}/pull/1256",),
    ),
    "zero_optimization.offload_optimizer.device": Reason(
        "fp32 weights and Adam's moments in CPU memory; accelerate swaps AdamW for DeepSpeed's CPU Adam, "
        "which is compiled at the first start and keeps the parameter groups (and so `--vit_lr`). Leave "
        "`--offload_optimizer` off beside it: nothing is left on the GPU to move."
    ),
    "zero_optimization.offload_optimizer.pin_memory": Reason(
        "Page-locked, for the full speed of PCIe. Set it to false where `ulimit -l` is small."
    ),
    "zero_optimization.offload_param.device": Reason(
        "Weight shards in CPU memory. Only together with offload_optimizer, and never with hpZ: the loss "
        "stays 0. Leave `--offload_model` off beside it: nothing is left on the GPU to move.",
        (f"{_SWIFT}/issues/3697",),
    ),
    "zero_optimization.offload_param.pin_memory": Reason("As for the optimizer."),
    "zero_optimization.sub_group_size": Reason(
        "The step makes fp32 gradients for this many elements at a time: 0.8 GB instead of the usual 4 GB, "
        "at the moment when memory is fullest."
    ),
    "zero_optimization.stage3_prefetch_bucket_size": Reason(
        "0. ms-swift forces it for GRPO whatever the file says: generation and training visit the modules in "
        "different orders, and prefetching follows the recorded one.",
        (f"{_SWIFT}/issues/3237",),
    ),
    "zero_optimization.stage3_param_persistence_threshold": Reason(
        "Weights up to 1e5 elements (norms, biases, LoRA matrices of rank 8) stay whole on every rank and "
        "need "
        "no gather. Not larger: LoRA is merged into the weights for the sync to vLLM and taken out again; a "
        "gathered weight is then thrown away, a persistent one keeps the rounding (in bf16, 20 syncs change "
        "7 % of its elements). The smallest merged weight is 896 x 128 = 114,688 (Ovis2-1B). Not `auto`, "
        "which is 10 x hidden_size."
    ),
    "zero_optimization.stage3_max_live_parameters": Reason("Gathered weights take at most 2 GB in bf16."),
    "zero_optimization.stage3_max_reuse_distance": Reason(
        "A weight needed again within 1e9 elements is kept, inside the limit above."
    ),
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": Reason(
        "Without it a full fine-tuning saves no weights, only shards. The whole model passes through the CPU "
        "memory of rank 0."
    ),
    "zero_optimization.zero_hpz_partition_size": Reason(
        "`auto` is filled by this package with the ranks of a node (DeepSpeed alone would drop it), so that "
        "weights are gathered over NVLink and only gradients cross nodes. It had losses of 0, too high or "
        "diverging in turn, the last fixed at the end of 2025; compare the first loss with ext_zero3 once.",
        (f"{_DS}/issues/4851", f"{_DS}/issues/5059", f"{_DS}/issues/7606"),
    ),
    "gradient_accumulation_steps": Reason(
        "Filled from the command line; a fixed value that differs is refused."
    ),
    "gradient_clipping": Reason("Filled from `--max_grad_norm`."),
    "train_batch_size": Reason("Filled from the command line."),
    "train_micro_batch_size_per_gpu": Reason("Filled from `--per_device_train_batch_size`."),
    "steps_per_print": Reason("ms-swift logs the steps; DeepSpeed keeps quiet."),
    "wall_clock_breakdown": Reason("Its timers synchronise the device at every micro-batch."),
}

# Keys that presets copied from elsewhere have and these have not.
LEFT_OUT: dict[str, Reason] = {
    "optimizer": Reason(
        "With it DeepSpeed builds the optimizer itself, and the parameter groups of `--vit_lr` and "
        "`--aligner_lr` are lost without a word.",
        (f"{_SWIFT}/issues/2723",),
    ),
    "scheduler": Reason("With it `--lr_scheduler_type` and `--warmup_ratio` do nothing."),
    "zero_optimization.leaf_module": Reason(
        "Leaf modules are for mixtures of experts, where ranks visit different experts; ms-swift sets them "
        "for the families that it knows. Qwen2.5-VL and Ovis2 run every module in every micro-batch, also "
        "without an image (the template then sends a blank one)."
    ),
    "zero_optimization.zero_quantized_weights": Reason(
        "Weights rounded to int8 on the way shift log-probs against those of vLLM, which the ratio then sees."
    ),
    "zero_optimization.stage3_model_persistence_threshold": Reason(
        "Unlimited: at 1e5 elements per weight the persistent ones are some 100 MB in all."
    ),
}


def flatten(config: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted keys and leaf values of a nested configuration, in order."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def values_of(key: str) -> dict[str, object]:
    """A key's value in each preset that has it."""
    return {
        name: dict(flatten(presets.load(name)))[key]
        for name in PURPOSE
        if key in dict(flatten(presets.load(name)))
    }


def as_markdown() -> str:
    """The page ``docs/deepspeed-presets.md``."""
    lines = [
        "# DeepSpeed presets",
        "",
        "Written by `python -m swift_grpo_ext.deepspeed.explained`; edit "
        "`swift_grpo_ext/deepspeed/explained.py`.",
        "",
        "`--deepspeed <name>` takes these beside ms-swift's own names, once the plugin is on the command "
        "line. Ids such as B1 are explained in [Findings](findings.md#the-defects-that-it-started-from).",
        "",
        "| name | for |",
        "|---|---|",
        *(f"| `{name}` | {purpose} |" for name, purpose in PURPOSE.items()),
        "",
        "## Every key, its value, and why",
        "",
        "| key | value | why | taught by |",
        "|---|---|---|---|",
        *(_row(key, _spell(values_of(key)), reason) for key, reason in REASONS.items()),
        "",
        "## Left out on purpose",
        "",
        "| key | | why | taught by |",
        "|---|---|---|---|",
        *(_row(key, "", reason) for key, reason in LEFT_OUT.items()),
        "",
    ]
    return "\n".join(lines)


def _row(key: str, value: str, reason: Reason) -> str:
    links = ", ".join(f"[{_short(link)}]({link})" for link in reason.taught_by)
    return f"| `{key}` | {value} | {reason.why} | {links} |"


def _spell(values: dict[str, object]) -> str:
    """One value where all presets agree, else each preset's."""
    spelled = {name: json.dumps(value) for name, value in values.items()}
    if len(set(spelled.values())) == 1:
        return f"`{next(iter(spelled.values()))}`"
    return "; ".join(f"{name}: `{value}`" for name, value in spelled.items())


def _short(link: str) -> str:
    repository, _, number = link.removeprefix("https://github.com/").partition("/issues/")
    if not number:
        repository, _, number = repository.partition("/pull/")
    return f"{repository.split('/')[1]}#{number}"


if __name__ == "__main__":
    print(as_markdown(), end="")
