"""The micro-batches that `swift_grpo_ext.trainer.group_cut` will make of those that were asked for."""

from __future__ import annotations

from dataclasses import replace

from swift_grpo_ext.doctor.plan import activations
from swift_grpo_ext.doctor.plan.memory import memory_range
from swift_grpo_ext.doctor.plan.setting import Machine, Setting, Work
from swift_grpo_ext.doctor.plan.sizes import ModelShape
from swift_grpo_ext.group.micro_batches import BatchSizes, cuts
from swift_grpo_ext.group.pack_memory import fits

_OF_PACKS = ("activations", "fragments", "cached blocks")


def as_cut(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Setting:
    """The same completions in micro-batches that hold as much of a group as fits half of the free memory."""
    before = BatchSizes(setting.micro_batch, setting.accumulation, setting.accumulation)
    ways = cuts(before, work.generations)
    if setting.train_gpus(machine) <= 0 or not ways:
        return setting
    terms = memory_range(shape, work, setting, machine).phases["update"]
    free = machine.usable - sum(term.high for term in terms if term.name not in _OF_PACKS)
    pack = activations.pack_shape(shape, work, setting)
    fitting = (way.sizes for way in ways if fits(pack, way.sizes.batch, way.prompts, free))
    after = next(fitting, before)
    cut = replace(setting, micro_batch=after.batch, accumulation=after.accumulation)
    return replace(cut, shared=cut.of_one_prompt(work.generations))
