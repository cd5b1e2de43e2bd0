"""The DeepSpeed configuration: what it does to a run, what does not go with it, and the stages of ZeRO."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.deepspeed.schema import objection
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.facts.files import HOST_PRESETS
from swift_grpo_ext.doctor.check.facts.run import HPZ, Run
from swift_grpo_ext.doctor.check.rules.table import (
    OUR_PLUGIN,
    deepspeed,
    fault,
    in_file,
    option,
    refused,
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
_HPZ_PLACE = f"zero_optimization.{HPZ}"
# The key of DeepSpeed today, and its older names.
_GATHER_ON_SAVE = (
    "stage3_gather_16bit_weights_on_model_save",
    "gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
)
of_file = partial(fault, scope=deepspeed)


@rule(
    "deepspeed-unreadable",
    ERROR,
    symptoms=("json.decoder.JSONDecodeError", "unknown DeepSpeed preset"),
    cause="--deepspeed takes a preset, a file or JSON.",
)
def _unreadable(run: Run) -> Iterator[Problem]:
    name = str(run.arguments.deepspeed or "")
    if isinstance(run.deepspeed, str):
        close = nearest(name, [*HOST_PRESETS, *presets.available()], NEAR)
        yield Problem(run.deepspeed, f"--deepspeed {name:.80}", f"--deepspeed {close or 'ext_zero2'}")
    elif name.startswith("ext_") and "presets" not in run.parts:
        yield Problem("our presets need our plugin", "--deepspeed", OUR_PLUGIN)


@rule(
    "deepspeed-refuses",
    ERROR,
    symptoms=("Extra inputs are not permitted", "DeepSpeedConfigError", "Input should be ..."),
    cause="The installed DeepSpeed's own configuration class does not take the file; releases add "
    "and remove keys.",
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


def _has_rates_of_parts(run: Run) -> bool:
    args = run.arguments
    return decided(args.vit_lr) is not None or decided(args.aligner_lr) is not None


of_file(
    "ds-optimizer-loses-rates",
    ERROR,
    lambda run: in_file(run, "optimizer") is not None and _has_rates_of_parts(run),
    "the optimizer block drops the parameter groups of --vit_lr and --aligner_lr",
    "optimizer",
    "delete the block; ms-swift builds AdamW from the command line",
    symptoms="--vit_lr or --aligner_lr has no effect with DeepSpeed",
    cause="An `optimizer` block makes DeepSpeed build the optimizer itself, over one list of "
    "parameters: the groups with their own learning rates are lost without a word.",
    reports="https://github.com/modelscope/ms-swift/issues/2723",
)
of_file(
    "ds-optimizer-block",
    WARNING,
    lambda run: in_file(run, "optimizer") is not None and not _has_rates_of_parts(run),
    "the optimizer block replaces the optimizer of the command line",
    "optimizer",
    "delete the block",
    symptoms="--optim, --weight_decay or --adam_beta2 has no effect with DeepSpeed",
    cause="DeepSpeed builds its own optimizer from the block and ms-swift's is never made.",
    reports="https://github.com/modelscope/ms-swift/issues/2723",
)
of_file(
    "ds-scheduler-block",
    WARNING,
    lambda run: in_file(run, "scheduler") is not None,
    "the scheduler block replaces --lr_scheduler_type and --warmup_ratio",
    "scheduler",
    "delete the block",
    symptoms="--lr_scheduler_type or --warmup_ratio has no effect with DeepSpeed",
    cause="DeepSpeed builds its own scheduler from the block.",
)


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
    for key in LEGACY_KEYS.keys() & run.zero.keys():
        yield Problem("key of an old DeepSpeed", f"zero_optimization.{key}", f"write {LEGACY_KEYS[key]}")
    name = "zero_optimization"
    if isinstance(in_file(run, name), bool):
        yield Problem(f"{name} must be an object, not a boolean", name, f'"{name}": {{"stage": 2}}')


@rule(
    "ds-mistyped-key",
    WARNING,
    symptoms="a block of the DeepSpeed file has no effect: out of memory although ZeRO-3 is asked for",
    cause="DeepSpeed passes over keys of the top level that it does not know.",
    scope=deepspeed,
)
def _mistyped(run: Run) -> Iterator[Problem]:
    keys = _KEYS.split()
    for key in run.deepspeed or ():
        guess = nearest(key, keys, 0.86)
        if guess and key not in keys:
            yield Problem(f"DeepSpeed has no key {key}", key, f'"{guess}": ...')


@rule(
    "ds-batch-mismatch",
    ERROR,
    symptoms="Please correct the following DeepSpeed config values that mismatch TrainingArguments values",
    cause="transformers compares the file's fixed values with those of the command line, and stops "
    "when the model is loaded.",
    scope=deepspeed,
)
def _mismatch(run: Run) -> Iterator[Problem]:
    for key, value in _expected(run).items():
        fixed = in_file(run, key)
        if value is not None and fixed not in (None, "auto", value):
            what = f"{key} is {fixed} here and {value} on the command line"
            yield Problem(what, key, f'"{key.rsplit(".", 1)[-1]}": "auto"')


def _expected(run: Run) -> dict[str, object]:
    """What transformers holds a DeepSpeed file against; None where the command line does not say it."""
    args = run.arguments
    precision = {"bfloat16": (True, False), "float16": (False, True), "float32": (False, True)}
    by_type = precision.get(str(args.torch_dtype), (None, None))
    return {
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


of_file(
    "ds-overlap-comm",
    WARNING,
    lambda run: run.zero.get("overlap_comm") is True and run.stage in (1, 2) and run.stage,
    "overlap_comm with ZeRO-{} has corrupted gradients",
    "zero_optimization.overlap_comm",
    '"overlap_comm": false',
    symptoms=(
        "loss or grad_norm becomes NaN with ZeRO-2",
        "grad_norm differs between ZeRO-1/2 and ZeRO-3",
    ),
    cause="With overlap_comm the reduction stream of ZeRO-1/2 read gradient buffers that were "
    "still being written, in several releases; where that was fixed by waiting, nothing "
    "overlaps.",
    reports=(
        "https://github.com/deepspeedai/DeepSpeed/issues/5545",
        "https://github.com/deepspeedai/DeepSpeed/issues/7804",
        "https://github.com/deepspeedai/DeepSpeed/issues/8061",
    ),
)
rule(
    "ds-zero0-bf16",
    ERROR,
    symptoms=(
        "grad_norm is tiny or grows without bound with ZeRO-0",
        "nothing is learned with zero0",
    ),
    cause="DeepSpeed before 0.18.6 divided bf16 gradients of ZeRO-0 by the fp16 loss scale, 65536, "
    "and did not clear them.",
    defect=DEFECTS["B11"],
    scope=deepspeed,
)(lambda run: refused(run, "B11", bf16=run.arguments.torch_dtype in (None, "bfloat16")))
of_file(
    "ds-saves-no-weights",
    WARNING,
    lambda run: (
        run.stage == 3
        and run.full
        and not any(run.zero.get(name) is True for name in _GATHER_ON_SAVE)
        and _GATHER_ON_SAVE[0]
    ),
    "full training with ZeRO-3 will save shards, not weights",
    "zero_optimization.{}",
    '"{}": true',
    symptoms="the checkpoint of a ZeRO-3 run has no model weights, or only a few MB",
    cause="Without stage3_gather_16bit_weights_on_model_save each rank saves its shards only.",
)


@rule(
    "ds-quantized",
    WARNING,
    symptoms="log-probs of trainer and vLLM differ from the first step on with ZeRO++",
    cause="Quantised weights or gradients make the trained policy another one than the policy that sampled.",
    scope=deepspeed,
)
def _ds_quantized(run: Run) -> Iterator[Problem]:
    for kind in ("weights", "gradients", "nontrainable_weights"):
        name = f"zero_quantized_{kind}"
        if run.zero.get(name) is True:
            what = "quantised communication shifts log-probs and gradients"
            yield Problem(what, f"zero_optimization.{name}", f'"{name}": false')


def _has_hpz(run: Run) -> bool:
    return run.zero.get(HPZ) not in (None, 0, 1)


def _cuts_ranks_unevenly(run: Run) -> tuple[object, ...] | None:
    size: Any = run.zero.get(HPZ, 1)
    uneven = isinstance(size, int) and size > 1 and run.ranks % min(size, run.ranks)
    return (run.ranks, size, run.ranks_per_node) if uneven else None


of_file(
    "ds-hpz-ranks",
    ERROR,
    _cuts_ranks_unevenly,
    f"{{}} ranks are not divisible by {HPZ} {{}}",
    _HPZ_PLACE,
    f'"{HPZ}": {{2}}',
    symptoms="AssertionError: ... is not divisible by ...",
    cause="hpZ cuts the ranks into groups of equal size.",
)
of_file(
    "ds-hpz-second-model",
    ERROR,
    lambda run: _has_hpz(run) and _loads_second_model(run) and not run.is_patched("hpz-second-model"),
    "hpZ cannot load a second model (reference, reward or teacher)",
    _HPZ_PLACE,
    DEFECTS["hpz-second-model"].fix,
    symptoms="AssertionError: ZeRO parameter intra parallel group is already initialized",
    cause="DeepSpeed makes the group of the secondary partition once per model that is loaded "
    "under ZeRO-3, and asserts that it is the first.",
    defect=DEFECTS["hpz-second-model"],
)
of_file(
    "ds-hpz-offload",
    ERROR,
    lambda run: _has_hpz(run) and run.offloads("offload_param"),
    "hpZ together with offload_param: the loss stays 0",
    _HPZ_PLACE,
    "--deepspeed ext_zero3_hpz, or --deepspeed ext_zero3_offload: keep one of the two",
    symptoms="loss is 0.0 and grad_norm is NaN with zero_hpz_partition_size",
    cause="hpZ keeps a second copy of the weights on the device, and with weights offloaded to the "
    "CPU that copy is read before it is written.",
    reports="https://github.com/modelscope/ms-swift/issues/3697",
)
of_file(
    "ds-hpz-one-node",
    WARNING,
    lambda run: _has_hpz(run) and run.nodes < 2,
    "hpZ on one node doubles the memory of the weights and saves nothing",
    _HPZ_PLACE,
    "--deepspeed ext_zero3",
    symptoms="out of memory since zero_hpz_partition_size was set",
    cause="hpZ saves traffic between nodes at the price of a second 16-bit copy of the weights per node.",
)
of_file(
    "ds-hpz-auto",
    WARNING,
    lambda run: (
        run.zero.get(HPZ) == "auto" and "presets" not in run.parts and (run.ranks_per_node, OUR_PLUGIN)
    ),
    f'nobody fills {HPZ} "auto", so it is dropped',
    _HPZ_PLACE,
    f'"{HPZ}": {{}}, or {{}}',
    symptoms="zero_hpz_partition_size has no effect",
    cause='DeepSpeed drops every "auto" that transformers does not fill, and this key is unknown to it.',
)


def _loads_second_model(run: Run) -> bool:
    args = run.arguments
    return bool((run.full and args.beta) or args.reward_model or args.teacher_model)


@rule(
    "ds-offload-twice",
    WARNING,
    symptoms="--offload_model or --offload_optimizer frees no memory",
    cause="What DeepSpeed keeps in CPU memory is not on the GPU: nothing is left to move for the rollout.",
    scope=deepspeed,
)
def _ds_offload_twice(run: Run) -> Iterator[Problem]:
    for name, block in (("offload_optimizer", "offload_optimizer"), ("offload_model", "offload_param")):
        if run.arguments.get(name) and run.offloads(block):
            what = f"--{name} moves nothing: {block} already keeps it in CPU memory"
            yield option(name, what, "false")


of_file(
    "ds-offload-param-stage",
    WARNING,
    lambda run: run.offloads("offload_param") and run.stage < 3 and (run.stage,),
    "offload_param does nothing in ZeRO-{}",
    "zero_optimization.offload_param",
    "--deepspeed ext_zero3_offload",
    symptoms="offload_param frees no memory",
    cause="Only ZeRO-3 shards weights, so only ZeRO-3 can offload them.",
)
of_file(
    "ds-offload-param-alone",
    WARNING,
    lambda run: (
        run.stage == 3
        and run.full
        and run.offloads("offload_param")
        and not run.offloads("offload_optimizer")
    ),
    "weights are offloaded, the optimizer states are not",
    "zero_optimization.offload_param",
    "--deepspeed ext_zero3_offload_optimizer: offload the optimizer first",
    symptoms="out of memory at the first optimizer step, although offload_param is on",
    cause="In full training the optimizer states are six times the 16-bit weights; offloading only "
    "the weights pays for PCIe in every pass and keeps the larger part on the GPU.",
)
rule(
    "ds-zero2-offload-drops-gradients",
    ERROR,
    symptoms=(
        "parameters hardly move with zero2_offload and gradient_accumulation_steps > 1",
        "grad_norm is smaller with zero2_offload than with zero2",
    ),
    cause="ZeRO-1/2 with the optimizer on the CPU adds only the first and the last micro-batch "
    "(DeepSpeed 0.15.2 to 0.18.9): at 32 steps of accumulation 30 of 32 completions are "
    "thrown away.",
    reports="A8",
    defect=DEFECTS["B1"],
    scope=deepspeed,
)(lambda run: refused(run, "B1"))
