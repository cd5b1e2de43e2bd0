"""Why a setting cannot run, by arithmetic."""

from collections.abc import Iterator
from dataclasses import dataclass

from swift_grpo_ext.doctor.plan import arithmetic
from swift_grpo_ext.doctor.plan.memory import MemoryRange
from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Setting, Work
from swift_grpo_ext.group.gpu_memory import GIB

# Phase -> when it is, in words.
MOMENTS = {
    "start": "when vLLM starts",
    "sync": "in the weight sync to vLLM",
    "rollout": "in the rollout",
    "update": "in forward and backward",
    "step": "in the optimizer step",
}


@dataclass(frozen=True)
class Objection:
    """One reason why a setting fails, or may fail."""

    what: str  # the reason with its figures
    fix: str  # what to change
    certain: bool = True  # it fails; else only the high end of a range speaks against it


def memory_objections(needed: MemoryRange, machine: Machine) -> Iterator[Objection]:
    """One if a GPU may be exceeded, in its worst phase, and one for the machine; certain by the low end."""
    phase = max(needed.phases, key=lambda phase: (needed.low(phase) > machine.usable, needed.needed(phase)))
    low = needed.low(phase)
    high = needed.needed(phase)
    if high > machine.usable:
        kept = [term for term in needed.phases[phase] if not term.returned]
        terms = sorted(kept, key=lambda term: -term.high)[:4]
        certain = low > machine.usable
        what = (
            f"{_span(low, high)} GiB {MOMENTS[phase]}, a GPU has {machine.usable / GIB:.0f} to give: "
            + ", ".join(f"{term.name} {_span(term.low, term.high)}" for term in terms)
        )
        fix = next((_FIXES[term.name] for term in terms if term.name in _FIXES), _FIX_OF_ANY)
        if not certain:
            widest = max(kept, key=lambda term: term.high - term.low)
            what = f"{what}; least known: {widest.name}"
            fix = f"{fix}; {_MEASURES.get(widest.name, _MEASURE_ANY)} would show which end holds"
        yield Objection(what, fix, certain)
    low, high = needed.cpu_total
    if machine.cpu_memory and high > machine.cpu_memory * GIB:
        yield Objection(
            f"{_span(low, high)} GiB of the machine's {machine.cpu_memory:.0f} GiB of memory",
            "offload less, or use more nodes",
            certain=low > machine.cpu_memory * GIB,
        )


def _span(low: float, high: float) -> str:
    """Least and most in GiB; one figure where they are the same."""
    texts = f"{low / GIB:.1f}", f"{high / GIB:.1f}"
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


# What to measure where the range of a term decides.
_MEASURE_ANY = "two steps (--max_steps 2) with the longest rows"
_MEASURES = {
    "activations": "completions/max_length in the log, and two steps with the largest images,",
}
_FIX_OF_ANY = "--deepspeed ext_zero3_offload, or use more GPUs"
_FIXES = {
    "gathered for the sync": "--move_model_batches 16: the weights are then sent in groups of layers",
    "vLLM": "--offload_model true --sleep_level 1, or a lower --vllm_gpu_memory_utilization",
    "activations": "--per_device_train_batch_size 1, or lower --max_completion_length or MAX_PIXELS",
    "images of the generation batch": "export MAX_PIXELS=501760, or lower --steps_per_generation",
    "optimizer states": "--deepspeed ext_zero3, or ext_zero3_offload_optimizer",
    "weights": "--deepspeed ext_zero3",
    "reference model": "--beta 0 needs none, --deepspeed ext_zero3 shards it",
    "gathered for generation": "--ds3_gather_for_generation false, or --use_vllm true",
}


def engine_objections(
    shape: ModelShape, work: Work, setting: Setting, machine: Machine
) -> Iterator[Objection]:
    """What speaks against the rollout engine: its length, and its key-value cache."""
    if setting.rollout == "transformers":
        return
    prompt = arithmetic.prompt_tokens(shape, work)
    needed = prompt + work.completion_tokens
    if setting.max_model_len and setting.max_model_len < needed:
        yield Objection(
            f"vllm_max_model_len {setting.max_model_len} is less than prompt {prompt} + completion "
            f"{work.completion_tokens} = {needed} tokens",
            f"--vllm_max_model_len {arithmetic.rounded_up(needed)}",
        )
    sequence = arithmetic.cache_per_sequence(shape, work, setting.tensor_parallel)
    most, least = arithmetic.cache_space(shape, setting, machine)
    if least < sequence:
        taken = arithmetic.weights(shape, setting) / GIB
        yield Objection(
            f"vLLM with utilization {setting.utilization:.2f} has at most {most / GIB:.1f} GiB left beside "
            f"its weights of {taken:.1f}, one sequence needs {sequence / GIB:.1f}",
            "--vllm_gpu_memory_utilization 0.9, or a larger --vllm_tensor_parallel_size",
            certain=most < sequence,
        )
