"""Blocks and keys that do not belong into a configuration for GRPO, or not with these values."""

from __future__ import annotations

from collections.abc import Iterator

from swift_grpo_ext.deepspeed.lint.setup import Setup, table
from swift_grpo_ext.defects import DEEPSPEED, DEFECTS, SWIFT
from swift_grpo_ext.errors import nearest
from swift_grpo_ext.findings import Problem, Severity


@table.rule(
    "ds-optimizer-loses-rates",
    Severity.ERROR,
    symptoms="--vit_lr or --aligner_lr has no effect with DeepSpeed",
    cause="An `optimizer` block makes DeepSpeed build the optimizer itself, over one list of parameters: the "
    "groups with their own learning rates are lost without a word.",
    reports=f"{SWIFT}/issues/2723",
)
def _optimizer_loses_rates(setup: Setup) -> Iterator[Problem]:
    if "optimizer" in setup.config and setup.separate_rates:
        yield Problem(
            "the optimizer block drops the parameter groups of --vit_lr and --aligner_lr",
            "optimizer",
            "delete the block; ms-swift builds AdamW from the command line",
        )


@table.rule(
    "ds-optimizer-block",
    Severity.WARNING,
    symptoms="--optim, --weight_decay or --adam_beta2 has no effect with DeepSpeed",
    cause="DeepSpeed builds its own optimizer from the block and ms-swift's is never made.",
    reports=f"{SWIFT}/issues/2723",
)
def _optimizer_block(setup: Setup) -> Iterator[Problem]:
    if "optimizer" in setup.config and not setup.separate_rates:
        yield Problem(
            "the optimizer block replaces the optimizer of the command line", "optimizer", "delete the block"
        )


@table.rule(
    "ds-scheduler-block",
    Severity.WARNING,
    symptoms="--lr_scheduler_type or --warmup_ratio has no effect with DeepSpeed",
    cause="DeepSpeed builds its own scheduler from the block.",
)
def _scheduler_block(setup: Setup) -> Iterator[Problem]:
    if "scheduler" in setup.config:
        yield Problem(
            "the scheduler block replaces --lr_scheduler_type and --warmup_ratio",
            "scheduler",
            "delete the block",
        )


@table.rule(
    "ds-overlap-comm",
    Severity.WARNING,
    symptoms=("loss or grad_norm becomes NaN with ZeRO-2", "grad_norm differs between ZeRO-1/2 and ZeRO-3"),
    cause="With overlap_comm the reduction stream of ZeRO-1/2 read gradient buffers that were still being "
    "written, in several releases; where that was fixed by waiting, nothing overlaps.",
    reports=(f"{DEEPSPEED}/issues/5545", f"{DEEPSPEED}/issues/7804", f"{DEEPSPEED}/issues/8061"),
)
def _overlap_comm(setup: Setup) -> Iterator[Problem]:
    if setup.zero.get("overlap_comm") is True and setup.stage in (1, 2):
        yield Problem(
            f"overlap_comm with ZeRO-{setup.stage} has corrupted gradients",
            "zero_optimization.overlap_comm",
            "set it to false",
        )


# Key of zero_optimization -> what replaces it.
LEGACY_KEYS = {
    "cpu_offload": '"offload_optimizer": {"device": "cpu"}',
    "cpu_offload_params": '"offload_param": {"device": "cpu"}',
    "cpu_offload_param": '"offload_param": {"device": "cpu"}',
    "cpu_offload_use_pin_memory": '"pin_memory" inside the offload blocks',
    "stage3_gather_fp16_weights_on_model_save": '"stage3_gather_16bit_weights_on_model_save"',
}


@table.rule(
    "ds-legacy-keys",
    Severity.WARNING,
    symptoms=(
        "Config parameter cpu_offload is deprecated",
        "Cannot provide deprecated parameter",
        "cpu_offload_params Extra inputs are not permitted",
    ),
    cause="The key is from DeepSpeed 0.3; newer releases map some of them and refuse the others.",
)
def _legacy_keys(setup: Setup) -> Iterator[Problem]:
    for key, new in LEGACY_KEYS.items():
        if key in setup.zero:
            yield Problem("key of an old DeepSpeed", f"zero_optimization.{key}", f"write {new}")
    if isinstance(setup.config.get("zero_optimization"), bool):
        yield Problem("a boolean is no ZeRO block", "zero_optimization", 'write {"stage": 2, ...}')


# Top level keys that people write; DeepSpeed has more.
_KEYS = (
    "activation_checkpointing",
    "bf16",
    "communication_data_type",
    "data_types",
    "fp16",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "optimizer",
    "scheduler",
    "steps_per_print",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "wall_clock_breakdown",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "zero_optimization",
)


@table.rule(
    "ds-mistyped-key",
    Severity.WARNING,
    symptoms="a block of the DeepSpeed file has no effect: out of memory although ZeRO-3 is asked for",
    cause="DeepSpeed passes over keys of the top level that it does not know.",
)
def _mistyped(setup: Setup) -> Iterator[Problem]:
    for key in setup.config:
        guess = nearest(key, _KEYS, 0.86)
        if guess and key not in _KEYS:
            yield Problem(f"DeepSpeed knows no {key}", key, f"did you mean {guess}?")


@table.rule(
    "ds-zero0-bf16",
    Severity.ERROR,
    symptoms=("grad_norm is tiny or grows without bound with ZeRO-0", "nothing is learned with zero0"),
    cause="DeepSpeed before 0.18.6 divided bf16 gradients of ZeRO-0 by the fp16 loss scale, 65536, and did "
    "not clear them.",
    defect=DEFECTS["B11"],
)
def _zero0(setup: Setup) -> Iterator[Problem]:
    if setup.stage == 0 and setup.bf16 and setup.is_harmed_by("B11"):
        yield Problem(
            f"ZeRO-0 with bf16 on DeepSpeed {setup.version} divides gradients by 65536",
            "zero_optimization.stage",
            DEFECTS["B11"].fix,
        )


@table.rule(
    "ds-batch-mismatch",
    Severity.ERROR,
    symptoms="Please correct the following DeepSpeed config values that mismatch TrainingArguments values",
    cause="transformers compares the file's fixed values with those of the command line, and stops when the "
    "model is loaded.",
)
def _mismatch(setup: Setup) -> Iterator[Problem]:
    expected = {
        "train_micro_batch_size_per_gpu": setup.micro_batch,
        "gradient_accumulation_steps": setup.accumulation,
        "train_batch_size": setup.micro_batch * setup.accumulation * setup.ranks,
        **setup.expected,
    }
    for key, value in expected.items():
        fixed = setup.value(key)
        if fixed not in (None, "auto", value):
            yield Problem(f"{key} is {fixed} here and {value} on the command line", key, 'write "auto"')


@table.rule(
    "ds-saves-no-weights",
    Severity.WARNING,
    symptoms="the checkpoint of a ZeRO-3 run has no model weights, or only a few MB",
    cause="Without stage3_gather_16bit_weights_on_model_save each rank saves its shards only.",
)
def _saves_no_weights(setup: Setup) -> Iterator[Problem]:
    keys = ("stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save")
    gathers = any(setup.zero.get(key) is True for key in (*keys, "stage3_gather_fp16_weights_on_model_save"))
    if setup.stage == 3 and setup.full_training and not gathers:
        yield Problem(
            "full training with ZeRO-3 will save shards, not weights",
            f"zero_optimization.{keys[0]}",
            "set it to true",
        )


@table.rule(
    "ds-quantized",
    Severity.WARNING,
    symptoms="log-probs of trainer and vLLM differ from the first step on with ZeRO++",
    cause="Quantised weights or gradients make the trained policy another one than the policy that sampled.",
)
def _quantized(setup: Setup) -> Iterator[Problem]:
    for key in ("zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights"):
        if setup.zero.get(key) is True:
            yield Problem(
                "quantised communication shifts log-probs and gradients",
                f"zero_optimization.{key}",
                "set it to false",
            )
