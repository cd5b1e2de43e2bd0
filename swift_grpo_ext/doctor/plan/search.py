"""Tries the settings that make sense, and ranks those that fit by tokens forwarded and memory head-room."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from swift_grpo_ext.doctor.plan import arithmetic
from swift_grpo_ext.doctor.plan.judge import Objection, engine_objections, memory_objections
from swift_grpo_ext.doctor.plan.memory import MemoryRange, memory_range
from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Setting, Work
from swift_grpo_ext.group.cut import BatchSizes, cuts
from swift_grpo_ext.group.pack_memory import fits

MICRO_BATCHES = (1, 2, 4, 8, 16)
LEAST_HEADROOM = 0.01  # part of a GPU that must be left


@dataclass(frozen=True)
class Plan:
    """A setting with what it needs."""

    setting: Setting  # the setting
    cut: Setting  # the same in the micro-batches that the trainer makes of it
    memory: MemoryRange  # its memory
    tokens: float  # tokens that are forwarded in one pass per completion; GPUs that do not train make it more
    refills: int  # how often the key-value cache of vLLM is filled to generate all completions in hand
    headroom: float  # part of a GPU that is left at the high end of the range; below 0 if it does not fit
    objections: tuple[Objection, ...]  # why it cannot run, or may not; empty if it can

    @property
    def fits(self) -> bool:
        """Nothing speaks against it."""
        return not self.objections

    @property
    def rank(self) -> tuple[float, ...]:
        """The order of the table: copies to the CPU and back (never timed), whether weights are gathered,
        tokens by 5 %, refills, room.
        """
        setting = self.setting
        gathers = setting.stage == 3  # the weights of each layer, in every pass
        copies = 2 * setting.offload_params + setting.offload_optimizer_states
        copies += setting.offload_model + setting.offload_optimizer
        tokens = round(20 * math.log(max(1.0, self.tokens)))
        return (copies, gathers, tokens, self.refills, -self.headroom, setting != self.cut)


def plans(shape: ModelShape, work: Work, machine: Machine) -> list[Plan]:
    """The fitting settings by rank, one of each kind; then the failing ones, smallest first."""
    prompt = arithmetic.prompt_tokens(shape, work)
    work = replace(work, text_tokens=work.text_tokens + -prompt % 256)  # what the written --max_length allows
    tried = [judged(shape, work, setting, machine) for setting in _settings(shape, work, machine)]
    fitting = sorted((plan for plan in tried if plan.fits), key=lambda plan: plan.rank)
    failing = sorted((plan for plan in tried if not plan.fits), key=lambda plan: plan.memory.peak[1])
    return _one_of_each_kind(fitting) + _one_of_each_kind(failing)


def judged(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Plan:
    """A setting with its memory and objections."""
    cut = as_cut(shape, work, setting, machine)
    needed = memory_range(shape, work, cut, machine)
    tokens = arithmetic.forwarded_tokens(shape, work, cut) * machine.gpus
    headroom = 1 - needed.peak[1] / machine.usable
    objections = [*engine_objections(shape, work, cut, machine), *memory_objections(needed, machine)]
    if not objections and headroom < LEAST_HEADROOM:
        what = f"{100 * headroom:.1f} % of a GPU is left at the high end: that is none"
        objections.append(
            Objection(what, "fewer completions in a micro-batch, or less of them", certain=False)
        )
    return Plan(
        setting,
        cut,
        needed,
        tokens / max(1, setting.generation_batch(machine)),
        _refills(shape, work, setting, machine),
        headroom,
        tuple(objections),
    )


def _refills(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> int:
    if setting.rollout == "transformers" or setting.train_gpus(machine) <= 0:
        return 1
    sequence = arithmetic.cache_per_sequence(shape, work, setting.tensor_parallel)
    least = arithmetic.cache_space(shape, setting, machine)[1]
    together = max(1, int(least / sequence))
    return math.ceil(arithmetic.sequences(setting, machine) / together)


def _one_of_each_kind(ordered: list[Plan]) -> list[Plan]:
    """The first of each sharding, rollout and tensor parallel size."""
    kinds: dict[tuple[object, ...], Plan] = {}
    for plan in ordered:
        setting = plan.setting
        kinds.setdefault(
            (setting.preset, setting.rollout, setting.server_gpus, setting.tensor_parallel), plan
        )
    return list(kinds.values())


def _settings(shape: ModelShape, work: Work, machine: Machine) -> Iterator[Setting]:
    for sharding in _shardings(work, machine):
        for start in _rollouts(shape, work, sharding, machine):
            if start.hpz and start.train_nodes(machine) < 2:
                continue  # inside one node a second copy only costs memory
            for held in _held(work, start.train_gpus(machine)):
                for micro in [work.batch] if work.batch else MICRO_BATCHES:
                    if held % micro == 0:
                        cut = replace(start, micro_batch=micro, accumulation=held // micro)
                        yield from _completed(shape, work, cut, machine)


def _held(work: Work, ranks: int) -> list[int]:
    """Completions of an optimizer step that one rank may hold."""
    group = work.generations
    if work.per_step:
        return [work.per_step // ranks] if work.per_step % ranks == 0 and work.per_step % group == 0 else []
    fewest = group // math.gcd(group, ranks)
    if work.batch:
        fewest = math.lcm(fewest, work.batch)
    return sorted({fewest, math.lcm(fewest, group)})


def _shardings(work: Work, machine: Machine) -> Iterator[Setting]:
    # Full training of plain bf16 has no fp32 masters, and rounds small updates away.
    yield Setting(stage=2 if work.full else 0 if machine.gpus == 1 else 1)
    if work.bits < 16:
        return  # ZeRO-3 cannot shard what bitsandbytes has packed
    if machine.gpus > 1:
        yield Setting(stage=3)
    if machine.nodes > 1:
        yield Setting(stage=3, hpz=True)
    if work.full:
        yield Setting(stage=3, offload_optimizer_states=True)
    yield Setting(stage=3, offload_optimizer_states=True, offload_params=True)


def _rollouts(shape: ModelShape, work: Work, start: Setting, machine: Machine) -> Iterator[Setting]:
    sizes = [n for n in (1, 2, 4, 8) if n <= machine.gpus_per_node and shape.heads % n == 0]
    if "transformers" in work.rollouts:
        yield replace(start, rollout="transformers")
    for size in sizes:
        if "colocate" in work.rollouts and machine.gpus_per_node % size == 0:
            yield replace(start, rollout="colocate", tensor_parallel=size)
        # The server has one whole node of several, or half of a single one.
        served = machine.gpus_per_node // (1 if machine.nodes > 1 else 2)
        if "server" in work.rollouts and size <= served:
            yield replace(start, rollout="server", tensor_parallel=size, server_gpus=served, sleep_level=0)


def _completed(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Iterator[Setting]:
    """Fill in what follows: utilization, groups of the weight sync, and offload if it helps."""
    shared = setting.of_one_prompt(work.generations) if shape.is_native else 1
    setting = replace(setting, shared=shared, scoring="chunks")
    if setting.rollout == "server":
        setting = replace(setting, utilization=0.9)
    elif setting.rollout == "colocate":
        least = arithmetic.least_utilization(shape, work, setting, machine)
        setting = replace(setting, utilization=min(0.9, max(0.3, least)))
    if setting.stage == 3 and setting.rollout != "transformers":  # groups of about 4 GB
        groups = min(shape.text.layers, max(1, math.ceil(2 * shape.language / 4e9)))
        setting = replace(setting, move_model_batches=groups)
    yield setting
    if setting.rollout == "colocate" and not setting.offload_params:
        moved = not setting.offload_optimizer_states and work.full
        yield replace(setting, offload_model=True, offload_optimizer=moved)


_OF_PACKS = ("activations", "fragments", "cached blocks")


def as_cut(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Setting:
    """The same completions in micro-batches that hold as much of a group as fits half of the free memory."""
    before = BatchSizes(setting.micro_batch, setting.accumulation, setting.accumulation)
    ways = cuts(before, work.generations, gathers=setting.stage == 3)
    if setting.train_gpus(machine) <= 0 or not ways or not shape.is_native:
        return setting
    terms = memory_range(shape, work, setting, machine).phases["update"]
    free = machine.usable - sum(term.high for term in terms if term.name not in _OF_PACKS)
    pack = arithmetic.pack_shape(shape, work, setting)
    fitting = (way.sizes for way in ways if fits(pack, way.sizes.batch, way.prompts, free))
    after = next(fitting, before)
    cut = replace(setting, micro_batch=after.batch, accumulation=after.accumulation)
    return replace(cut, shared=cut.of_one_prompt(work.generations))
