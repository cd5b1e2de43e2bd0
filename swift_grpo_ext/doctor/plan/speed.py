"""Seconds of one generation batch, by arithmetic: only the ratios between settings are of use.

Generation is bound by reading weights and cache, training by operations, ZeRO-3 by gathering every weight
once per pass with nothing to hide it behind (ms-swift turns prefetching off for GRPO).
"""

from __future__ import annotations

from dataclasses import dataclass

from swift_grpo_ext.doctor.plan import activations, engine
from swift_grpo_ext.doctor.plan.setting import Machine, Setting, Work
from swift_grpo_ext.doctor.plan.shape import ModelShape

TRAIN_EFFICIENCY = 0.4  # of the peak operations
READ_EFFICIENCY = 0.6  # of the memory bandwidth, in decoding
HOP = 15e-6  # seconds of one all-reduce of a few tokens, two per layer and token under tensor parallelism
CALL = 20e-6  # seconds to launch one layer without CUDA graphs' help
CPU_ADAM = 1e9  # parameters per second and node that DeepSpeed's CPU Adam updates


@dataclass(frozen=True)
class Duration:
    """Seconds of one generation batch by phase."""

    generate: float
    sync: float
    gather: float
    compute: float
    step: float

    @property
    def total(self) -> float:
        """All phases one after the other."""
        return self.generate + self.sync + self.gather + self.compute + self.step


def duration(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> Duration:
    """Seconds that one generation batch takes."""
    return Duration(
        generate=_generate(shape, work, setting, machine),
        sync=_sync(shape, setting, machine),
        gather=_gather(shape, work, setting, machine),
        compute=_compute(shape, work, setting, machine),
        step=_step(shape, work, setting, machine),
    )


def completions_per_second(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """Completions trained per second."""
    return setting.generation_batch(machine) / duration(shape, work, setting, machine).total


def _generate(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    parallel = setting.tensor_parallel if setting.rollout != "transformers" else 1
    in_hand = engine.sequences(setting, machine)
    fits = in_hand
    if setting.rollout != "transformers":
        fits = max(1, min(in_hand, int(engine.concurrent(shape, work, setting, machine))))
    rounds = -(-in_hand // fits)
    context = activations.prompt_tokens(shape, work) + work.completion_tokens / 2
    read = 2 * shape.total / parallel + fits * context * engine.cache_per_token(shape, parallel)
    token = read / (READ_EFFICIENCY * machine.hbm) + shape.layers * (2 * HOP * (parallel > 1))
    if setting.rollout == "transformers":
        token += shape.layers * 10 * CALL
    prefill = 2 * shape.total * activations.prompt_tokens(shape, work) * in_hand
    return rounds * work.completion_tokens * token + prefill / (parallel * machine.flops * TRAIN_EFFICIENCY)


def _sync(shape: ModelShape, setting: Setting, machine: Machine) -> float:
    if setting.rollout == "transformers":
        return 0
    seconds = 2 * shape.total / machine.nvlink if setting.stage == 3 or setting.rollout == "server" else 0
    seconds += 2 * shape.total / setting.tensor_parallel / machine.hbm
    if setting.offload_params or setting.offload_model:
        seconds += 2 * shape.total / setting.train_gpus(machine) / machine.pcie
    if setting.rollout == "colocate" and setting.sleep_level == 1:
        seconds += 2 * engine.weights(shape, setting) / machine.pcie  # to sleep and awake again
    return seconds + 0.02 * setting.move_model_batches


def _passes(work: Work) -> int:
    """Passes that read every weight: forward, backward with recomputation, reference."""
    return 2 + work.kl


def _gather(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    if setting.stage < 3:
        return 0
    between_nodes = setting.train_nodes(machine) > 1 and not setting.hpz
    link = machine.network if between_nodes else machine.nvlink
    seconds = 2 * shape.total / link
    if setting.offload_params:
        seconds += 2 * shape.total / setting.train_gpus(machine) / machine.pcie
    return setting.accumulation * _passes(work) * seconds


def _compute(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """Operations per weight and token: 2 forward, 2 to recompute, 2 or 4 backward, 2 for the reference."""
    tokens = setting.micro_batch * setting.accumulation * activations.sequence_tokens(shape, work)
    per_weight = 2 + 2 + (4 if work.full else 2) + (2 if work.kl else 0)
    return per_weight * shape.language * tokens / (machine.flops * TRAIN_EFFICIENCY)


def _step(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    trained = shape.trainable(
        full=work.full, rank=work.lora_rank, freeze_vit=work.freeze_vit, freeze_aligner=work.freeze_aligner
    )
    if setting.offload_optimizer_states:
        return trained / setting.train_nodes(machine) / CPU_ADAM
    ranks = setting.train_gpus(machine)
    return 16 * trained / ranks / machine.hbm + (2 * trained / machine.nvlink if 0 < setting.stage < 3 else 0)
