"""DeepSpeed configurations: files that are refused, and keys that do not fit GRPO or the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.deepspeed.schema import objection
from swift_grpo_ext.doctor.check.files import HOST_PRESETS
from swift_grpo_ext.doctor.check.rules.table import OUR_PLUGIN, in_file, table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import NEAR, nearest
from swift_grpo_ext.findings import Problem

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


@table.on("deepspeed-unreadable")
def _unreadable(run: Run) -> Iterator[Problem]:
    if isinstance(run.deepspeed, str):
        name = str(run.arguments.deepspeed)
        close = nearest(name, [*HOST_PRESETS, *presets.available()], NEAR)
        yield Problem(run.deepspeed, f"--deepspeed {name:.80}", f"--deepspeed {close or 'ext_zero2'}")
    elif str(run.arguments.deepspeed or "").startswith("ext_") and "presets" not in run.parts:
        yield Problem("our presets need our plugin", "--deepspeed", OUR_PLUGIN)


@table.on("deepspeed-refuses")
def _deepspeed_refuses(run: Run) -> Iterator[Problem]:
    name = str(run.arguments.deepspeed or "")
    own = name in HOST_PRESETS or name.startswith("ext_")
    if not isinstance(run.deepspeed, dict) or own or not run.versions.get("deepspeed"):
        return
    block, message = run.deepspeed.get("zero_optimization", {"stage": 0}), objection(run.deepspeed)
    if not isinstance(block, dict) or type(block.get("stage")) is not int:  # ms-swift stumbles over it first
        message = f"zero_optimization is {json.dumps(block):.60}, it needs a stage from 0 to 3"
    if message:
        yield Problem(message, f"--deepspeed {name:.80}", "--deepspeed ext_zero2, or a file without it")


@table.on("ds-legacy-keys")
def _legacy_keys(run: Run) -> Iterator[Problem]:
    for key, new in LEGACY_KEYS.items():
        if key in run.zero:
            yield Problem("key of an old DeepSpeed", f"zero_optimization.{key}", f"write {new}")
    if isinstance(in_file(run, "zero_optimization"), bool):
        yield Problem("a boolean is no ZeRO block", "zero_optimization", '"zero_optimization": {"stage": 2}')


@table.on("ds-mistyped-key")
def _mistyped(run: Run) -> Iterator[Problem]:
    known = _KEYS.split()
    for key in run.deepspeed if isinstance(run.deepspeed, dict) else ():
        guess = nearest(key, known, 0.86)
        if guess and key not in known:
            yield Problem(f"DeepSpeed knows no {key}", key, f'"{guess}": ...')


@table.on("ds-batch-mismatch")
def _mismatch(run: Run) -> Iterator[Problem]:
    for key, value in _expected(run).items():
        fixed = in_file(run, key)
        if fixed not in (None, "auto", value):
            what = f"{key} is {fixed} here and {value} on the command line"
            yield Problem(what, key, f'"{key.rsplit(".", 1)[-1]}": "auto"')


@table.on("ds-hpz-ranks")
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
    bf16, fp16 = precision.get(str(args.torch_dtype), (args.bf16, args.fp16))
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
        "bf16.enabled": bf16 if args.bf16 is None else args.bf16,
        "fp16.enabled": fp16 if args.fp16 is None else args.fp16,
    }
    return {key: value for key, value in values.items() if value is not None}
