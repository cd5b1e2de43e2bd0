"""Bytes on one GPU in each phase of a GRPO step, term by term, as a range.

What no formula knows (reserve, communicators, workspaces, vLLM asleep) has a least and a most;
docs/memory.md holds them against published figures. The states and what stands beside them are those by
which the trainer cuts micro-batches (`group.gpu_memory`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from swift_grpo_ext.doctor.plan import arithmetic
from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Setting, Work
from swift_grpo_ext.group.gpu_memory import ASLEEP, COMMUNICATORS, CONTEXT, GIB, gathered_bytes

BESIDE = (0.0, 1 * GIB)  # what vLLM takes beyond its share: graphs that its profile did not count
# The allocator keeps what no later tensor fits, least none: parts of blocks, which stay lost, and whole
# blocks of other lengths, which it gives back before it fails. Parts of all that comes and goes.
FRAGMENTS = 0.15
CACHED = 0.75
# CPU: interpreter, libraries, pinned buffers, dataset of one process; data loader workers come on top.
PROCESS = (2 * GIB, 8 * GIB)


@dataclass(frozen=True)
class Term:
    """One thing that takes memory, in bytes."""

    name: str  # what it is
    low: float  # least
    high: float  # most
    returned: bool = False  # it is given back where memory is short: nothing fails because of it


Terms = list[Term]


@dataclass(frozen=True)
class MemoryRange:
    """Memory of one training GPU by phase, and of one machine's CPU."""

    phases: dict[str, tuple[Term, ...]]  # see `judge.MOMENTS`
    cpu: tuple[Term, ...]  # terms of one machine's memory

    def low(self, phase: str) -> float:
        """Least bytes of a phase."""
        return sum(term.low for term in self.phases[phase])

    def needed(self, phase: str) -> float:
        """Most bytes of a phase that are not given back where memory is short."""
        return sum(term.high for term in self.phases[phase] if not term.returned)

    @property
    def peak_phase(self) -> str:
        """The phase that may need most."""
        return max(self.phases, key=self.needed)

    @property
    def peak(self) -> tuple[float, float]:
        """Least and most bytes that a GPU must have at its fullest moment."""
        return max(map(self.low, self.phases)), max(map(self.needed, self.phases))

    @property
    def cpu_total(self) -> tuple[float, float]:
        """Least and most bytes in one machine's memory."""
        return sum(term.low for term in self.cpu), sum(term.high for term in self.cpu)


def memory_range(
    shape: ModelShape, work: Work, setting: Setting, machine: Machine, least: Work | None = None
) -> MemoryRange:
    """Memory that a setting needs, from least to most."""
    most = _phases(shape, work, setting, machine)
    for phase, lowest in _phases(shape, least, setting, machine).items() if least else ():
        pairs = zip(lowest, most[phase], strict=True)
        most[phase] = tuple(replace(term, low=min(lower.low, term.low)) for lower, term in pairs)
    return MemoryRange(most, tuple(_cpu(shape, work, setting, machine)))


def _phases(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> dict[str, tuple[Term, ...]]:
    fixed = [Term("CUDA context", *CONTEXT)]
    if setting.train_gpus(machine) > 1:
        fixed.append(Term("NCCL buffers", *COMMUNICATORS))
    weights = list(_weights(shape, work, setting, machine))
    optimizer = [_exact("optimizer states", arithmetic.optimizer_states(shape, work, setting, machine))]
    kept = fixed + weights + optimizer
    start = fixed + ([] if setting.offload_model else weights)
    while_rolling = start + ([] if setting.offload_optimizer else optimizer)
    awake, asleep, loaded = _engine_terms(shape, setting, machine)
    gradients = [_exact("gradients", arithmetic.gradient_bytes(shape, work, setting, machine))]
    passing = [
        _exact("gathered weights", gathered_bytes(shape.total, shape.largest, setting.stage)),
        Term("activations", *arithmetic.update_peak(shape, work, setting)),
    ]
    images = _exact("images of the generation batch", arithmetic.pixel_values(shape, work, setting))
    step = Term("optimizer step", *arithmetic.step_bytes(shape, work, setting, machine))
    generated = list(_generate_terms(shape, work, setting))
    rolled, passed = (sum(term.high for term in terms) for terms in (generated, passing))
    return {
        "start": (*start, *awake),
        "sync": (*kept, *loaded, _exact("gathered for the sync", arithmetic.sync_bytes(shape, setting))),
        "rollout": (*while_rolling, *awake, *generated, *_kept(rolled, CACHED * rolled)),
        "update": (*kept, *asleep, *gradients, images, *passing, *_kept(passed, CACHED * passed)),
        "step": (*kept, *asleep, *gradients, step, *_kept(step.high, passed)),
    }


def _exact(name: str, size: float) -> Term:
    return Term(name, size, size)


def _kept(fragmented: float, cached: float) -> Iterator[Term]:
    """What the allocator holds beside tensors that come and go."""
    yield Term("fragments", 0, FRAGMENTS * fragmented)
    yield Term("cached blocks", 0, cached, returned=True)


def _weights(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Iterator[Term]:
    own = arithmetic.weight_bytes(shape, work, setting, machine)
    yield Term("weights", *own)
    if not work.full:
        yield Term("LoRA", 2 * shape.lora(work.lora_rank), 4 * shape.lora(work.lora_rank))
    elif work.kl:
        yield Term("reference model", *own)


def _engine_terms(shape: ModelShape, setting: Setting, machine: Machine) -> tuple[Terms, Terms, Terms]:
    """What vLLM takes on a training GPU: awake, asleep, and with only its weights loaded."""
    if setting.rollout != "colocate":
        return [], [], []
    share = setting.utilization * machine.gpu_memory * GIB
    awake = [Term("vLLM", share + BESIDE[0], share + BESIDE[1])]
    if setting.sleep_level == 0:
        return awake, awake, awake
    asleep = Term("vLLM asleep", *ASLEEP)
    loaded = [_exact("vLLM weights", arithmetic.weights(shape, setting)), asleep]
    return awake, [asleep], loaded


def _generate_terms(shape: ModelShape, work: Work, setting: Setting) -> Iterator[Term]:
    """Rollout by transformers' generate; a cache that grows token by token leaves blocks behind."""
    if setting.rollout != "transformers":
        return
    cache = arithmetic.cache_per_sequence(shape, work, 1)
    most = setting.micro_batch * setting.accumulation * cache
    yield _exact("gathered for generation", 2 * shape.total if setting.stage == 3 else 0)
    yield Term("key-value cache", setting.micro_batch * cache, most)


def _cpu(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Iterator[Term]:
    """Pinned copies may cost half as much again, as in DeepSpeed's estimators."""
    trained = arithmetic.trained_parameters(shape, work)
    nodes = setting.train_nodes(machine)
    share = setting.ranks_per_node(machine)
    yield Term("processes", share * PROCESS[0], share * PROCESS[1])
    if setting.offload_optimizer_states:
        yield Term("optimizer states and gradients", 16 * trained / nodes, 1.5 * 16 * trained / nodes)
    if setting.offload_params:
        yield Term("weights", 2 * shape.total / nodes, 1.5 * 2 * shape.total / nodes)
    if setting.offload_model:
        low, high = arithmetic.weight_bytes(shape, work, setting, machine)
        yield Term("--offload_model", share * low, share * high)
    if setting.offload_optimizer:
        yield _exact(
            "--offload_optimizer", share * arithmetic.optimizer_states(shape, work, setting, machine)
        )
    if setting.rollout == "colocate" and setting.sleep_level == 1:
        yield _exact("vLLM's sleeping weights", share * arithmetic.weights(shape, setting))
    if setting.stage < 3:
        yield Term("weights while loading", 0, 2 * shape.total * share)
