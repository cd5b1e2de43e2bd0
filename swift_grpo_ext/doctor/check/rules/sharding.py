"""DeepSpeed: its file, its lint, and what ZeRO does not go with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.deepspeed.lint import Setup, lint
from swift_grpo_ext.deepspeed.schema import objection
from swift_grpo_ext.doctor.check.deepspeed_file import HOST_PRESETS
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import NEAR, nearest
from swift_grpo_ext.findings import Finding, Problem


@table.on("deepspeed-unreadable")
def _unreadable(run: Run) -> Iterator[Problem]:
    if isinstance(run.deepspeed, str):
        name = str(run.arguments.deepspeed)
        close = nearest(name, [*HOST_PRESETS, *presets.available()], NEAR)
        yield Problem(run.deepspeed, f"--deepspeed {name:.80}", f"--deepspeed {close or 'ext_zero2'}")
    elif str(run.arguments.deepspeed or "").startswith("ext_") and "presets" not in run.parts:
        yield Problem(
            "our presets need our plugin", "--deepspeed", '--external_plugins "$(swift-grpo-ext path)"'
        )


@table.on("deepspeed-refuses")
def _deepspeed_refuses(run: Run) -> Iterator[Problem]:
    name = str(run.arguments.deepspeed or "")
    own = name in HOST_PRESETS or name.startswith("ext_")
    if isinstance(run.deepspeed, dict) and not own and run.versions.get("deepspeed"):
        message = _no_block(run.deepspeed) or objection(run.deepspeed)
        if message:
            yield Problem(message, f"--deepspeed {name:.80}", "--deepspeed ext_zero2, or a file without it")


def _no_block(config: dict[str, object]) -> str:
    """What is wrong with a ZeRO block that ms-swift stumbles over before DeepSpeed sees it."""
    block = config.get("zero_optimization", {"stage": 0})
    if not isinstance(block, dict) or type(block.get("stage")) is not int:
        return f"zero_optimization is {json.dumps(block):.60}, it needs a stage from 0 to 3"
    return ""


def deepspeed_findings(run: Run) -> list[Finding]:
    """The lint of the run's DeepSpeed configuration."""
    args = run.arguments
    if not isinstance(run.deepspeed, dict):
        return []
    patches = {"B1-zero2-offload": "B1", "hpz-second-model": "hpz-second-model"}
    healed = {defect for patch, defect in patches.items() if run.heals(patch)}
    second = (run.full and bool(args.beta)) or bool(args.reward_model) or bool(args.teacher_model)
    setup = Setup(
        run.deepspeed,
        version=run.versions.get("deepspeed"),
        ranks=run.ranks,
        ranks_per_node=run.ranks_per_node,
        micro_batch=run.micro_batch,
        accumulation=run.accumulation,
        full_training=run.full,
        second_model=second,
        separate_rates=args.vit_lr is not None or args.aligner_lr is not None,
        bf16=str(args.torch_dtype or "bfloat16") == "bfloat16",
        offload_model=args.offload_model,
        offload_optimizer=args.offload_optimizer,
        fills_hpz="presets" in run.parts,
        expected=_expected(run),
        healed=frozenset(healed),
    )
    return lint(setup)


def _expected(run: Run) -> dict[str, Any]:
    """What transformers holds a DeepSpeed file against, as far as the command line says it."""
    args = run.arguments
    values = {
        "gradient_clipping": args.max_grad_norm,
        "optimizer.params.lr": args.learning_rate,
        "optimizer.params.betas": [args.adam_beta1, args.adam_beta2],
        "optimizer.params.eps": args.adam_epsilon,
        "optimizer.params.weight_decay": args.weight_decay,
        "scheduler.params.warmup_max_lr": args.learning_rate,
    }
    precision = {"bfloat16": (True, False), "float16": (False, True), "float32": (False, True)}
    bf16, fp16 = precision.get(str(args.torch_dtype), (args.bf16, args.fp16))
    values["bf16.enabled"] = bf16 if args.bf16 is None else args.bf16
    values["fp16.enabled"] = fp16 if args.fp16 is None else args.fp16
    return {key: value for key, value in values.items() if value is not None}
