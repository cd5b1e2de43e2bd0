"""Memory, an error if the least exceeds a GPU and a warning if the most does; and DeepSpeed's file."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.deepspeed.schema import objection
from swift_grpo_ext.doctor.check.files import HOST_PRESETS
from swift_grpo_ext.doctor.check.media import ImagesSeen, images_seen
from swift_grpo_ext.doctor.check.rules.table import OUR_PLUGIN, in_file, table
from swift_grpo_ext.doctor.check.rules.topology import devices
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.doctor.plan.judge import memory_objections
from swift_grpo_ext.doctor.plan.memory import memory_range
from swift_grpo_ext.doctor.plan.search import as_cut
from swift_grpo_ext.doctor.plan.setting import Machine, Setting, Work
from swift_grpo_ext.errors import NEAR, SwiftGrpoExtError, nearest
from swift_grpo_ext.findings import NotKnownError, Problem
from swift_grpo_ext.losses import loss_named

_USUAL_PIXELS = 1_003_520  # of one image where nothing limits it and no row was seen
_USUAL_TEXT = 1024  # tokens of a long question, or what max_length leaves beside an image
_LEAST_PIXELS = 200_704  # of a small image: 256 tokens of 28 x 28 pixels


def _problems(run: Run, *, certain: bool) -> Iterator[Problem]:
    if not run.gpu_memory or run.shape is None:
        return
    if len(devices(run.environ)) >= 2 * run.ranks_per_node:  # ms-swift's device_map
        raise NotKnownError("memory of a model spread over several GPUs")
    machine = Machine(run.nodes, run.ranks_per_node, run.gpu_memory, run.cpu_memory)
    images = images_seen(run)
    work, setting = work_of(run, images), setting_of(run)
    if _is_cut(run):
        setting = as_cut(run.shape, work, setting, machine)
    needed = memory_range(run.shape, work, setting, machine, least_work(work, images))
    found = [one for one in memory_objections(needed, machine) if one.certain is certain]
    if found:  # one fault, however many phases show it
        yield Problem("; ".join(one.what for one in found), "memory by arithmetic", found[0].fix)


table.on("memory")(partial(_problems, certain=True))
table.on("memory-tight")(partial(_problems, certain=False))


def work_of(run: Run, images: ImagesSeen | None = None) -> Work:
    """The run's work as the planner sees it, at most, with the images of its first rows."""
    args = run.arguments
    pixels = run.max_pixels if run.limits_pixels else _USUAL_PIXELS
    if images is not None and images.pixels[1]:
        pixels = min(run.max_pixels, images.pixels[1])
    count = 1 if images is None else images.images[1]
    image = count * run.shape.vision.tokens(pixels) if run.shape and run.shape.vision else 0
    return Work(
        full=run.full,
        lora_rank=args.lora_rank or 8,
        lora_dropout=0.0 if "trainer" in run.parts else args.lora_dropout or 0.0,
        generations=max(1, args.num_generations),
        text_tokens=max(64, min(_USUAL_TEXT, (args.max_length or _USUAL_TEXT) - image)),
        images=count,
        max_pixels=pixels,
        completion_tokens=args.max_completion_length,
        kl=bool(args.beta),
        freeze_vit=args.freeze_vit is not False,
        freeze_aligner=args.freeze_aligner is not False,
        freeze_llm=bool(args.freeze_llm),
        bits=_bits(run),
    )


def least_work(work: Work, images: ImagesSeen | None = None) -> Work:
    """What the run surely meets: completions of a quarter of the limit, small images, short prompts."""
    return replace(
        work,
        text_tokens=min(64, work.text_tokens),
        images=work.images if images is None else images.images[0],
        max_pixels=min(images.pixels[0] if images else _LEAST_PIXELS, work.max_pixels),
        completion_tokens=-(-work.completion_tokens // 4),
    )


def _bits(run: Run) -> int:
    """Bits of a weight: bitsandbytes' own, else 16 (a quantised checkpoint's are not known here)."""
    args = run.arguments
    return int(args.quant_bits) if args.quant_method == "bnb" and str(args.quant_bits) in ("4", "8") else 16


def setting_of(run: Run) -> Setting:
    """The run's setting as the planner sees it."""
    args = run.arguments
    colocated = args.use_vllm and args.vllm_mode == "colocate"
    checkpointing = args.gradient_checkpointing is not False
    vit = checkpointing if args.vit_gradient_checkpointing is None else bool(args.vit_gradient_checkpointing)
    setting = Setting(
        stage=run.stage,
        offload_optimizer_states=run.offloads("offload_optimizer"),
        offload_params=run.offloads("offload_param"),
        hpz=run.zero.get("zero_hpz_partition_size", 1) not in (0, 1),
        rollout="colocate" if colocated else "server" if args.use_vllm else "transformers",
        tensor_parallel=max(1, args.vllm_tensor_parallel_size),
        utilization=args.vllm_gpu_memory_utilization,
        max_model_len=args.vllm_max_model_len or 0,
        sleep_level=args.sleep_level,
        offload_model=args.offload_model,
        offload_optimizer=args.offload_optimizer,
        move_model_batches=args.move_model_batches or 0,
        micro_batch=run.micro_batch,
        accumulation=run.steps_per_generation,
        attention=args.attn_impl or "sdpa",
        checkpointing=checkpointing,
        vit_checkpointing=vit,
        bucket=_bucket(run),
        scoring="chunks" if "trainer" in run.parts else "liger" if args.use_liger_kernel else "logits",
    )
    shared = setting.of_one_prompt(max(1, args.num_generations)) if _shares(run) else 1
    return replace(setting, shared=shared)


def _shares(run: Run) -> bool:
    """Whether completions of one prompt in a micro-batch forward it once."""
    lacks = run.facts.lacks if run.facts else {}
    return bool("trainer" in run.parts and run.shape and run.shape.is_native and "shared_prefix" not in lacks)


def _is_cut(run: Run) -> bool:
    """Whether the trainer cuts micro-batches by groups on its own."""
    args = run.arguments
    losses = args.loss_type if isinstance(args.loss_type, (list, tuple)) else [args.loss_type or "grpo"]
    liger = bool(args.use_liger_kernel)
    sizes_matter = any(loss_named(str(name)).why_sizes_matter(liger) for name in losses)
    if sizes_matter or (args.top_entropy_quantile or 1.0) < 1.0:
        return False
    if args.num_generations < 2 or not _shares(run):
        return False
    with suppress(SwiftGrpoExtError):  # of which another rule tells
        return run.settings.group_batch is None
    return False


def _bucket(run: Run) -> float:
    size = run.zero.get("reduce_bucket_size", 5e8)
    if size == "auto" and run.shape is not None:  # what transformers fills in
        return float(run.shape.text.hidden**2)
    return float(size) if isinstance(size, (int, float)) and not isinstance(size, bool) else 5e8


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
        yield Problem(
            "zero_optimization must be an object, not a boolean",
            "zero_optimization",
            '"zero_optimization": {"stage": 2}',
        )


@table.on("ds-mistyped-key")
def _mistyped(run: Run) -> Iterator[Problem]:
    known = _KEYS.split()
    for key in run.deepspeed if isinstance(run.deepspeed, dict) else ():
        guess = nearest(key, known, 0.86)
        if guess and key not in known:
            yield Problem(f"DeepSpeed has no key {key}", key, f'"{guess}": ...')


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
