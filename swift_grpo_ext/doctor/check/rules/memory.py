"""Memory by arithmetic: an error if the least that a run needs exceeds a GPU."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from swift_grpo_ext.doctor.check.facts import environment, model
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import grpo, rule
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.doctor.plan.memory import objections
from swift_grpo_ext.doctor.plan.models import find_config
from swift_grpo_ext.doctor.plan.setting import SMALL_PIXELS, Machine, ModelShape, Setting, Work
from swift_grpo_ext.findings import ERROR, NotKnownError, Problem


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
    shape = model.shape(run.model)
    if shape is None:
        raise NotKnownError("memory, without the model's config.json")
    if not run.gpu_memory:
        raise NotKnownError("memory, without --gpu-memory")
    for what in _uncounted(run):
        raise NotKnownError(f"memory with {what}")
    machine = Machine(run.nodes, run.ranks_per_node, run.gpu_memory)
    yield from objections(shape, least_work(run), setting_of(run, shape), machine)


# Arguments that shard, freeze, quantize or spread what the arithmetic counts in full, and neutral values.
_CHANGING = re.compile(
    "fsdp|optim|optimizer|(freeze|trainable)_parameters(_regex|_ratio)?|use_galore|lisa_activated_layers|device_map"
    "|sequence_parallel_size|deepspeed_autotp_size|use_liger_kernel|tuner_backend|quant_method"
)
_USUAL: tuple[Any, ...] = (None, False, "adamw_torch", "adamw_torch_fused")
_QUANTISED = re.compile(r"(?i)awq|gptq|(?<!pr)int[48]|fp[48]|[48]-?bit|gguf")


def _uncounted(run: Run) -> Iterator[str]:
    """Options and other reasons why a run may need less memory than the arithmetic says."""
    args = run.arguments
    names = filter(_CHANGING.fullmatch, sorted(args.given))
    yield from (f"--{name}" for name in names if args.get(name) not in _USUAL)
    if _QUANTISED.search(run.model) or "quantization_config" in (find_config(run.model) or {}):
        yield "quantised weights"
    if run.by_accelerate:
        yield "accelerate launch"
    if len(environment.devices(run.environ)) >= 2 * run.ranks_per_node:  # ms-swift's device_map
        yield "several GPUs a rank"


def least_work(run: Run) -> Work:
    """The least work that a run surely has: short prompts, a small image, a quarter of the length limit."""
    args = run.arguments
    return Work(
        full=run.full,
        lora_rank=args.lora_rank or 8,
        generations=max(1, args.num_generations),
        text_tokens=64,
        max_pixels=min(SMALL_PIXELS, model.max_pixels(run)),
        completion_tokens=-(-args.max_completion_length // 4),
        kl=bool(args.beta),
        freeze_vit=decided(args.freeze_vit) is not False,
        freeze_aligner=decided(args.freeze_aligner) is not False,
        freeze_llm=bool(args.freeze_llm),
    )


def setting_of(run: Run, shape: ModelShape) -> Setting:
    """The run's setting for the planner's arithmetic."""
    args = run.arguments
    ours = "trainer" in run.parts
    bucket = model.zero(run).get("reduce_bucket_size", 5e8)
    setting = Setting(
        stage=model.stage(run),
        offload_optimizer_states=model.offloads(run, "offload_optimizer"),
        offload_params=model.offloads(run, "offload_param"),
        rollout="colocate" if run.colocates else "server" if args.use_vllm else "transformers",
        tensor_parallel=max(1, args.vllm_tensor_parallel_size),
        utilization=args.vllm_gpu_memory_utilization,
        sleep_level=args.sleep_level,
        offload_model=args.offload_model,
        offload_optimizer=args.offload_optimizer,
        move_model_batches=args.move_model_batches or 0,
        micro_batch=run.micro_batch,
        accumulation=run.steps_per_generation,
        checkpointing=decided(args.gradient_checkpointing) is not False,
        # transformers fills in "auto"
        bucket=float(bucket if type(bucket) in (int, float) else shape.text.hidden**2),
        scoring="chunks" if ours else "logits",
    )
    shares = ours and not model.lacks(run, "shared_prefix")
    return replace(setting, shared=setting.of_one_prompt(max(1, args.num_generations)) if shares else 1)
