"""Bytes on one GPU in each phase of a GRPO step, term by term, as a range.

Sizes without a formula (fragments, communicators, workspaces, vLLM asleep) have a lower and an upper bound.
The model states and fixed sizes are those by which the trainer splits micro-batches (`group.gpu_memory`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from swift_grpo_ext.doctor.plan import arithmetic
from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Setting, Work
from swift_grpo_ext.findings import Problem
from swift_grpo_ext.group.gpu_memory import ASLEEP, COMMUNICATORS, CONTEXT, GIB, gathered_bytes

BESIDE = 1 * GIB  # most memory that vLLM takes beyond its share: CUDA graphs that its profile did not count
# Largest share of temporary tensors that the allocator loses to fragmentation.
FRAGMENTS = 0.15


@dataclass(frozen=True)
class Term:
    """One use of memory, in bytes."""

    name: str  # as printed
    low: float  # lower bound
    high: float  # upper bound


# Phase -> its name in a sentence.
MOMENTS = {
    "rest": "between steps",
    "start": "when vLLM starts",
    "sync": "in the weight sync to vLLM",
    "rollout": "in the rollout",
    "update": "in forward and backward",
    "step": "in the optimizer step",
}


@dataclass(frozen=True)
class MemoryRange:
    """Memory of one training GPU by phase (see `MOMENTS`)."""

    phases: dict[str, tuple[Term, ...]]

    def of_phase(self, phase: str) -> tuple[float, float]:
        """Least and most bytes of a phase."""
        terms = self.phases[phase]
        return sum(term.low for term in terms), sum(term.high for term in terms)

    @property
    def peak(self) -> tuple[float, float]:
        """Least and most bytes of the fullest phase."""
        least, most = zip(*map(self.of_phase, self.phases), strict=True)
        return max(least), max(most)


def memory_range(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> MemoryRange:
    """Memory that a setting needs, from least to most.

    Our trainer merges micro-batches as long as they fit into half of the free memory, so this does not exceed
    the memory left by the estimate.
    """
    fixed = [Term("CUDA context", *CONTEXT)]
    if machine.gpus > 1:
        fixed.append(Term("NCCL buffers", *COMMUNICATORS))
    weights = list(_weights(shape, work, setting, machine))
    optimizer = [_exact("optimizer states", arithmetic.optimizer_states(shape, work, setting, machine))]
    kept = fixed + weights + optimizer
    start = fixed + ([] if setting.offload_model else weights)
    while_rolling = start + ([] if setting.offload_optimizer else optimizer)
    awake, asleep, loaded = _engine(shape, setting, machine)
    gradients = _exact("gradients", arithmetic.gradient_bytes(shape, work, setting, machine))
    images = _exact("images", arithmetic.pixel_values(shape, work, setting))
    passing = (
        _exact("gathered weights", gathered_bytes(shape.total, shape.largest, setting.stage)),
        Term("activations", *arithmetic.update_peak(shape, work, setting)),
    )
    step = Term("optimizer step", *arithmetic.step_bytes(shape, work, setting, machine))
    generated = list(_generation(shape, work, setting))
    return MemoryRange(
        {
            "rest": (*kept, *asleep),
            "start": (*start, *awake),
            "sync": (*kept, *loaded, _exact("gathered for the sync", arithmetic.sync_bytes(shape, setting))),
            "rollout": (*while_rolling, *awake, *generated, _fragments(generated)),
            "update": (*kept, *asleep, gradients, images, *passing, _fragments(passing)),
            "step": (*kept, *asleep, gradients, images, step, _fragments([step])),
        }
    )


def objections(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Iterator[Problem]:
    """A problem if even the least memory of that work exceeds a GPU."""
    needed = memory_range(shape, work, setting, machine)
    phase = max(needed.phases, key=needed.of_phase)
    low, _ = needed.of_phase(phase)
    if low > machine.usable:
        terms = sorted(needed.phases[phase], key=lambda term: -term.low)[:3]
        largest = ", ".join(f"{term.name} {term.low / GIB:.1f}" for term in terms)
        has = f"a GPU has {machine.usable / GIB:.0f}"
        yield Problem(
            f"at least {low / GIB:.1f} GiB {MOMENTS[phase]}, {has}: {largest}",
            "memory by arithmetic",
            "swift-grpo-ext plan shows the layouts that fit, and what helps most",
        )


def _exact(name: str, size: float) -> Term:
    return Term(name, size, size)


def _fragments(terms: Iterable[Term]) -> Term:
    """Fragmented memory that the allocator holds beside temporary tensors and cannot reuse."""
    return Term("fragments", 0, FRAGMENTS * sum(term.high for term in terms))


def _weights(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Iterator[Term]:
    own = arithmetic.weight_bytes(shape, setting, machine)
    yield _exact("weights", own)
    if not work.full:
        adapters = shape.lora(work.lora_rank)
        # At most in 32 bits; without DeepSpeed so are their gradients and moments, which are included.
        yield Term("LoRA", 2 * adapters, (4 if setting.stage else 10) * adapters)
    elif work.kl:
        yield _exact("reference model", own)


def _engine(
    shape: ModelShape, setting: Setting, machine: Machine
) -> tuple[list[Term], list[Term], list[Term]]:
    """Memory of vLLM on a training GPU: awake, asleep, and with only its weights loaded."""
    if setting.rollout != "colocate":
        return [], [], []
    share = setting.utilization * machine.gpu_memory * GIB
    awake = [Term("vLLM", share, share + BESIDE)]
    if setting.sleep_level == 0:
        return awake, awake, awake
    asleep = Term("vLLM asleep", *ASLEEP)
    return awake, [asleep], [_exact("vLLM weights", arithmetic.weights(shape, setting)), asleep]


def _generation(shape: ModelShape, work: Work, setting: Setting) -> Iterator[Term]:
    """Rollout by transformers' generate; a cache that grows token by token leaves freed blocks behind."""
    if setting.rollout != "transformers":
        return
    cache = setting.micro_batch * arithmetic.cache_per_sequence(shape, work, 1)
    yield _exact("gathered for generation", 2 * shape.total if setting.stage == 3 else 0)
    yield Term("key-value cache", cache, setting.accumulation * cache)
