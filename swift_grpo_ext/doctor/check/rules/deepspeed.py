"""The DeepSpeed configuration: what it does to a run, and what does not go with it."""

import json
from collections.abc import Iterator
from typing import Any

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.deepspeed.schema import objection
from swift_grpo_ext.doctor.check.facts.files import HOST_PRESETS
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import (
    OUR_PLUGIN,
    deepspeed,
    in_file,
    rule,
)
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.errors import NEAR, nearest
from swift_grpo_ext.findings import ERROR, WARNING, Problem

# Key of zero_optimization -> what replaces it.
LEGACY_KEYS = {
    "cpu_offload": '"offload_optimizer": {"device": "cpu"}',
    "cpu_offload_params": '"offload_param": {"device": "cpu"}',
    "cpu_offload_param": '"offload_param": {"device": "cpu"}',
    "cpu_offload_use_pin_memory": '"pin_memory" inside the offload blocks',
    "stage3_gather_fp16_weights_on_model_save": '"stage3_gather_16bit_weights_on_model_save"',
}
# Top level keys that people write; DeepSpeed has more.
_KEYS = """
    activation_checkpointing bf16 communication_data_type data_types fp16 gradient_accumulation_steps
    gradient_clipping optimizer scheduler steps_per_print train_batch_size
    train_micro_batch_size_per_gpu wall_clock_breakdown zero_allow_untested_optimizer
    zero_force_ds_cpu_optimizer zero_optimization
    """


@rule(
    "deepspeed-unreadable",
    ERROR,
    symptoms=(
        "json.decoder.JSONDecodeError",
        "unknown DeepSpeed preset",
    ),
    cause="--deepspeed takes a preset, a file or JSON.",
)
def _unreadable(run: Run) -> Iterator[Problem]:
    if isinstance(run.deepspeed, str):
        name = str(run.arguments.deepspeed)
        close = nearest(name, [*HOST_PRESETS, *presets.available()], NEAR)
        yield Problem(run.deepspeed, f"--deepspeed {name:.80}", f"--deepspeed {close or 'ext_zero2'}")
    elif str(run.arguments.deepspeed or "").startswith("ext_") and "presets" not in run.parts:
        yield Problem("our presets need our plugin", "--deepspeed", OUR_PLUGIN)


@rule(
    "deepspeed-refuses",
    ERROR,
    symptoms=(
        "Extra inputs are not permitted",
        "DeepSpeedConfigError",
        "Input should be ...",
    ),
    cause=(
        "The installed DeepSpeed's own configuration class does not take the file; releases add "
        "and remove keys."
    ),
    reports="https://github.com/deepspeedai/DeepSpeed/issues/8489",
)
def _deepspeed_refuses(run: Run) -> Iterator[Problem]:
    name = str(run.arguments.deepspeed or "")
    own = name in HOST_PRESETS or name.startswith("ext_")
    if not isinstance(run.deepspeed, dict) or own or not run.versions.get("deepspeed"):
        return
    block = run.deepspeed.get("zero_optimization", {"stage": 0})
    message = objection(run.deepspeed)
    if not isinstance(block, dict) or type(block.get("stage")) is not int:  # ms-swift stumbles over it first
        message = f"zero_optimization is {json.dumps(block):.60}, it needs a stage from 0 to 3"
    if message:
        yield Problem(message, f"--deepspeed {name:.80}", "--deepspeed ext_zero2, or a file without it")


@rule(
    "ds-optimizer-loses-rates",
    ERROR,
    symptoms="--vit_lr or --aligner_lr has no effect with DeepSpeed",
    cause=(
        "An `optimizer` block makes DeepSpeed build the optimizer itself, over one list of "
        "parameters: the groups with their own learning rates are lost without a word."
    ),
    reports="https://github.com/modelscope/ms-swift/issues/2723",
    scope=deepspeed,
)
def _ds_optimizer_loses_rates(run: Run) -> Iterator[Problem]:
    if in_file(run, "optimizer") is not None and _has_rates_of_parts(run):
        what = "the optimizer block drops the parameter groups of --vit_lr and --aligner_lr"
        yield Problem(what, "optimizer", "delete the block; ms-swift builds AdamW from the command line")


def _has_rates_of_parts(run: Run) -> bool:
    args = run.arguments
    return decided(args.vit_lr) is not None or decided(args.aligner_lr) is not None


@rule(
    "ds-optimizer-block",
    WARNING,
    symptoms="--optim, --weight_decay or --adam_beta2 has no effect with DeepSpeed",
    cause="DeepSpeed builds its own optimizer from the block and ms-swift's is never made.",
    reports="https://github.com/modelscope/ms-swift/issues/2723",
    scope=deepspeed,
)
def _ds_optimizer_block(run: Run) -> Iterator[Problem]:
    if in_file(run, "optimizer") is not None and not _has_rates_of_parts(run):
        what = "the optimizer block replaces the optimizer of the command line"
        yield Problem(what, "optimizer", "delete the block")


@rule(
    "ds-scheduler-block",
    WARNING,
    symptoms="--lr_scheduler_type or --warmup_ratio has no effect with DeepSpeed",
    cause="DeepSpeed builds its own scheduler from the block.",
    scope=deepspeed,
)
def _ds_scheduler_block(run: Run) -> Iterator[Problem]:
    if in_file(run, "scheduler") is not None:
        what = "the scheduler block replaces --lr_scheduler_type and --warmup_ratio"
        yield Problem(what, "scheduler", "delete the block")


@rule(
    "ds-legacy-keys",
    WARNING,
    symptoms=(
        "Config parameter cpu_offload is deprecated",
        "Cannot provide deprecated parameter",
        "cpu_offload_params Extra inputs are not permitted",
    ),
    cause="The key is from DeepSpeed 0.3; newer releases map some of them and refuse the others.",
    scope=deepspeed,
)
def _legacy_keys(run: Run) -> Iterator[Problem]:
    for key, new in LEGACY_KEYS.items():
        if key in run.zero:
            yield Problem("key of an old DeepSpeed", f"zero_optimization.{key}", f"write {new}")
    if isinstance(in_file(run, "zero_optimization"), bool):
        yield Problem(
            "zero_optimization must be an object, not a boolean",
            "zero_optimization",
            '"zero_optimization": {"stage": 2}',
        )


@rule(
    "ds-mistyped-key",
    WARNING,
    symptoms="a block of the DeepSpeed file has no effect: out of memory although ZeRO-3 is asked for",
    cause="DeepSpeed passes over keys of the top level that it does not know.",
    scope=deepspeed,
)
def _mistyped(run: Run) -> Iterator[Problem]:
    keys = _KEYS.split()
    for key in run.deepspeed if isinstance(run.deepspeed, dict) else ():
        guess = nearest(key, keys, 0.86)
        if guess and key not in keys:
            yield Problem(f"DeepSpeed has no key {key}", key, f'"{guess}": ...')


@rule(
    "ds-batch-mismatch",
    ERROR,
    symptoms="Please correct the following DeepSpeed config values that mismatch TrainingArguments values",
    cause=(
        "transformers compares the file's fixed values with those of the command line, and stops "
        "when the model is loaded."
    ),
    scope=deepspeed,
)
def _mismatch(run: Run) -> Iterator[Problem]:
    for key, value in _expected(run).items():
        fixed = in_file(run, key)
        if fixed not in (None, "auto", value):
            what = f"{key} is {fixed} here and {value} on the command line"
            yield Problem(what, key, f'"{key.rsplit(".", 1)[-1]}": "auto"')


@rule(
    "ds-hpz-ranks",
    ERROR,
    symptoms="AssertionError: ... is not divisible by ...",
    cause="hpZ cuts the ranks into groups of equal size.",
    scope=deepspeed,
)
def _hpz_ranks(run: Run) -> Iterator[Problem]:
    name = "zero_hpz_partition_size"
    size: Any = run.zero.get(name, 1)
    if isinstance(size, int) and size > 1 and run.ranks % min(size, run.ranks):
        what = f"{run.ranks} ranks are not divisible by {name} {size}"
        yield Problem(what, f"zero_optimization.{name}", f'"{name}": {run.ranks_per_node}')


def _expected(run: Run) -> dict[str, object]:
    """What transformers holds a DeepSpeed file against, as far as the command line says it."""
    args = run.arguments
    precision = {"bfloat16": (True, False), "float16": (False, True), "float32": (False, True)}
    by_type = precision.get(str(args.torch_dtype), (args.bf16, args.fp16))
    values = {
        "train_micro_batch_size_per_gpu": run.micro_batch,
        "gradient_accumulation_steps": run.accumulation,
        "train_batch_size": run.micro_batch * run.accumulation * run.ranks,
        "gradient_clipping": args.max_grad_norm,
        "optimizer.params.lr": args.learning_rate,
        "optimizer.params.betas": [args.adam_beta1, args.adam_beta2],
        "optimizer.params.eps": args.adam_epsilon,
        "optimizer.params.weight_decay": args.weight_decay,
        "scheduler.params.warmup_max_lr": args.learning_rate,
        "bf16.enabled": by_type[0] if args.bf16 is None else args.bf16,
        "fp16.enabled": by_type[1] if args.fp16 is None else args.fp16,
    }
    return {key: value for key, value in values.items() if value is not None}
