"""Memory: an error if the least that a run needs exceeds a GPU."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from swift_grpo_ext.doctor.check.facts import environment
from swift_grpo_ext.doctor.check.facts.media import ImagesSeen, images_seen
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import fault, grpo, grpo_anywhere, lacks, rule
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.doctor.plan.memory import objections
from swift_grpo_ext.doctor.plan.setting import SMALL_PIXELS, USUAL_PIXELS, Machine, Setting, Work
from swift_grpo_ext.findings import ERROR, NOTE, NotKnownError, Problem

_USUAL_TEXT = 1024  # tokens of a long question, or what max_length leaves beside an image


@rule(
    "memory",
    ERROR,
    symptoms=(
        "torch.OutOfMemoryError: CUDA out of memory",
        "Free memory on device ... is less than desired GPU memory utilization",
        "a 72B run hangs or is killed before the first step",
    ),
    cause=(
        "Weights, gradients, optimizer states, activations and vLLM's share together exceed a GPU: "
        "an error if short completions and small images do."
    ),
    reports=(
        "A9",
        "https://github.com/modelscope/ms-swift/issues/3592",
        "https://github.com/modelscope/ms-swift/issues/7822",
    ),
    scope=grpo,
)
def _memory(run: Run) -> Iterator[Problem]:
    if not run.gpu_memory or run.shape is None:
        return
    if len(environment.devices(run.environ)) >= 2 * run.ranks_per_node:  # ms-swift's device_map
        raise NotKnownError("memory of a model spread over several GPUs")
    machine = Machine(run.nodes, run.ranks_per_node, run.gpu_memory, run.cpu_memory)
    images = None
    with suppress(NotKnownError):  # where the rows are
        images = images_seen([sample.media for sample in run.data.training])
    work = work_of(run, images)
    setting = setting_of(run)
    yield from objections(run.shape, least_work(work, images), setting, machine)


def work_of(run: Run, images: ImagesSeen | None = None) -> Work:
    """The run's work as the planner sees it, at most, with the images of its first rows."""
    args = run.arguments
    pixels = run.max_pixels if run.limits_pixels else USUAL_PIXELS
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
        freeze_vit=decided(args.freeze_vit) is not False,
        freeze_aligner=decided(args.freeze_aligner) is not False,
        freeze_llm=bool(args.freeze_llm),
        bits=_bits(run),
    )


def least_work(work: Work, images: ImagesSeen | None = None) -> Work:
    """What the run surely meets: completions of a quarter of the limit, small images, short prompts."""
    return replace(
        work,
        text_tokens=min(64, work.text_tokens),
        images=work.images if images is None else images.images[0],
        max_pixels=min(images.pixels[0] if images else SMALL_PIXELS, work.max_pixels),
        completion_tokens=-(-work.completion_tokens // 4),
    )


def _bits(run: Run) -> int:
    """Bits of a weight: bitsandbytes' own, else 16 (a quantised checkpoint's are not known here)."""
    args = run.arguments
    return int(args.quant_bits) if args.quant_method == "bnb" and str(args.quant_bits) in ("4", "8") else 16


def setting_of(run: Run) -> Setting:
    """The run's setting as the planner sees it."""
    args = run.arguments
    checkpointing = decided(args.gradient_checkpointing) is not False
    setting = Setting(
        stage=run.stage,
        offload_optimizer_states=run.offloads("offload_optimizer"),
        offload_params=run.offloads("offload_param"),
        hpz=run.zero.get("zero_hpz_partition_size", 1) not in (0, 1),
        rollout="colocate" if run.colocates else "server" if args.use_vllm else "transformers",
        tensor_parallel=max(1, args.vllm_tensor_parallel_size),
        utilization=args.vllm_gpu_memory_utilization,
        sleep_level=args.sleep_level,
        offload_model=args.offload_model,
        offload_optimizer=args.offload_optimizer,
        move_model_batches=args.move_model_batches or 0,
        micro_batch=run.micro_batch,
        accumulation=run.steps_per_generation,
        checkpointing=checkpointing,
        bucket=_bucket(run),
        scoring="chunks" if "trainer" in run.parts else "logits",
    )
    shared = setting.of_one_prompt(max(1, args.num_generations)) if _shares(run) else 1
    return replace(setting, shared=shared)


def _shares(run: Run) -> bool:
    """Whether completions of one prompt in a micro-batch forward it once."""
    return bool("trainer" in run.parts and run.shape and "shared_prefix" not in lacks(run))


def _bucket(run: Run) -> float:
    size = run.zero.get("reduce_bucket_size", 5e8)
    if size == "auto" and run.shape is not None:  # what transformers fills in
        return float(run.shape.text.hidden**2)
    return float(size) if isinstance(size, (int, float)) and not isinstance(size, bool) else 5e8


@rule(
    "memory-unknown",
    NOTE,
    symptoms="check says nothing about memory",
    cause="--gpu-memory was not given and no GPU is here, or the model's configuration is not known.",
    scope=grpo,
    not_checked="memory",
)
def _memory_unknown(run: Run) -> Iterator[Problem]:
    if not run.shape:
        what = "no configuration of this model here: memory was not checked"
        yield Problem(what, f"--model {run.arguments.model}", "check again where the model is downloaded")
    elif not run.gpu_memory:
        yield Problem("memory was not checked", fix="say how much a GPU has: --gpu-memory 80")


fault(
    "memory-of-megatron",
    NOTE,
    lambda run: run.megatron,
    "memory of megatron rlhf is not modelled",
    "",
    "--train_iters 2 on the machine shows it",
    symptoms="check says nothing about the memory of megatron rlhf",
    cause="The planner's arithmetic is that of ZeRO; tensor, pipeline and expert parallel shards "
    "are other sums.",
    scope=grpo_anywhere,
    not_checked="memory",
)
