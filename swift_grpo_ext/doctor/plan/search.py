"""Tries the settings that make sense, keeps those that fit, fastest first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from swift_grpo_ext.doctor.plan import engine
from swift_grpo_ext.doctor.plan.judge import Objection, objections
from swift_grpo_ext.doctor.plan.memory import Budget, budget
from swift_grpo_ext.doctor.plan.setting import Machine, Rollout, Setting, Work
from swift_grpo_ext.doctor.plan.shape import ModelShape
from swift_grpo_ext.doctor.plan.speed import completions_per_second

MICRO_BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Plan:
    """A setting with what it needs.

    Attributes:
        setting: The setting.
        budget: Its memory.
        speed: Completions per second by arithmetic; of use only in comparison.
        objections: Why it cannot run; empty if it can.
    """

    setting: Setting
    budget: Budget
    speed: float
    objections: tuple[Objection, ...]

    @property
    def fits(self) -> bool:
        """Nothing speaks against it."""
        return not self.objections


def plans(
    shape: ModelShape, work: Work, machine: Machine, rollouts: tuple[Rollout, ...] = ("colocate", "server")
) -> list[Plan]:
    """The fitting settings, fastest first, one of each kind; then the failing ones, smallest first."""
    tried = [judged(shape, work, setting, machine) for setting in _settings(shape, work, machine, rollouts)]
    fitting = sorted((plan for plan in tried if plan.fits), key=lambda plan: -plan.speed)
    failing = sorted((plan for plan in tried if not plan.fits), key=lambda plan: plan.budget.peak)
    return _one_of_each_kind(fitting) + _one_of_each_kind(failing)


def judged(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Plan:
    """A setting with its memory, speed and objections."""
    return Plan(
        setting,
        budget(shape, work, setting, machine),
        completions_per_second(shape, work, setting, machine),
        tuple(objections(shape, work, setting, machine)),
    )


def _one_of_each_kind(ordered: list[Plan]) -> list[Plan]:
    """The first of each sharding, rollout and tensor parallel size."""
    kinds: dict[tuple[object, ...], Plan] = {}
    for plan in ordered:
        setting = plan.setting
        kind = (setting.preset, setting.rollout, setting.server_gpus, setting.tensor_parallel)
        kinds.setdefault(kind, plan)
    return list(kinds.values())


def _settings(
    shape: ModelShape, work: Work, machine: Machine, rollouts: tuple[Rollout, ...]
) -> Iterator[Setting]:
    for sharding in _shardings(work, machine):
        for start in _rollouts(shape, sharding, machine, rollouts):
            if start.hpz and start.train_nodes(machine) < 2:
                continue  # inside one node a second copy only costs memory
            for micro in MICRO_BATCHES:
                yield from _completed(shape, work, replace(start, micro_batch=micro), machine)


def _shardings(work: Work, machine: Machine) -> Iterator[Setting]:
    if machine.gpus == 1 and not work.full:
        yield Setting(stage=0)
    elif machine.gpus == 1:
        yield Setting(stage=2)  # plain bf16 has no fp32 masters, and rounds small updates away (DEFECTS B2)
    else:
        yield Setting(stage=2 if work.full else 1)
        yield Setting(stage=3)
    if machine.nodes > 1:
        yield Setting(stage=3, hpz=True)
    if work.full:
        yield Setting(stage=3, offload_optimizer_states=True)
    yield Setting(stage=3, offload_optimizer_states=True, offload_params=True)


def _rollouts(
    shape: ModelShape, start: Setting, machine: Machine, rollouts: tuple[Rollout, ...]
) -> Iterator[Setting]:
    sizes = [n for n in (1, 2, 4, 8) if n <= machine.gpus_per_node and shape.heads % n == 0]
    if "transformers" in rollouts:
        yield replace(start, rollout="transformers")
    for size in sizes:
        if "colocate" in rollouts and machine.gpus_per_node % size == 0:
            yield replace(start, rollout="colocate", tensor_parallel=size)
        for served in _served(size, machine) if "server" in rollouts else ():
            yield replace(start, rollout="server", tensor_parallel=size, server_gpus=served, sleep_level=0)


def _served(size: int, machine: Machine) -> Iterator[int]:
    """GPUs for the server: half of one node, or, with several nodes, one whole node."""
    if machine.nodes > 1:
        yield machine.gpus_per_node
    elif machine.gpus_per_node >= 2 and size <= machine.gpus_per_node // 2:
        yield machine.gpus_per_node // 2


def _completed(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Iterator[Setting]:
    """Fill in what follows: accumulation, utilization, groups of the weight sync, and offload if it helps."""
    accumulation = _accumulation(work, setting.train_gpus(machine), setting.micro_batch)
    setting = replace(setting, accumulation=accumulation)
    if setting.rollout == "server":
        setting = replace(setting, utilization=0.9)
    elif setting.rollout == "colocate":
        least = engine.least_utilization(shape, work, setting, machine)
        setting = replace(setting, utilization=min(0.9, max(0.3, least)))
    setting = replace(setting, move_model_batches=_groups(shape, setting))
    yield setting
    if setting.rollout == "colocate" and not setting.offload_params:
        states = not setting.offload_optimizer_states and work.full
        yield replace(setting, offload_model=True, offload_optimizer=states)


def _accumulation(work: Work, ranks: int, micro_batch: int) -> int:
    """Fewest micro-batches that make a generation batch of whole groups."""
    return work.generations // math.gcd(work.generations, ranks * micro_batch)


def _groups(shape: ModelShape, setting: Setting) -> int:
    """Groups of about 4 GB, and no more groups than layers."""
    if setting.stage < 3 or setting.rollout == "transformers":
        return 0
    return min(shape.layers, max(1, math.ceil(2 * shape.language / 4e9)))
