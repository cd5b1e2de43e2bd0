"""Memory of the vLLM engine on one GPU."""

from __future__ import annotations

import math

from swift_grpo_ext.doctor.plan.activations import sequence_tokens
from swift_grpo_ext.doctor.plan.setting import GIB, Machine, Setting, Work
from swift_grpo_ext.doctor.plan.sizes import ModelShape

# Activations of vLLM's profile run with the largest image, CUDA graphs, communicators: least and most.
# vLLM prints its own figure when it starts.
OVERHEAD = (1 * GIB, 3 * GIB)


def weights(shape: ModelShape, setting: Setting) -> float:
    """16-bit weights of one GPU of an engine."""
    return 2 * shape.total / setting.tensor_parallel


def cache_per_token(shape: ModelShape, tensor_parallel: int) -> float:
    """Keys and values of one token on one GPU; heads are shared out no finer than one per GPU."""
    return 2 * 2 * shape.text.attending * shape.text.kv / min(tensor_parallel, shape.kv_heads)


def cache_per_sequence(shape: ModelShape, work: Work, tensor_parallel: int) -> float:
    """Keys and values of a prompt and its longest completion on one GPU."""
    return sequence_tokens(shape, work) * cache_per_token(shape, tensor_parallel)


def sequences(setting: Setting, machine: Machine) -> int:
    """Completions that one engine has in hand at a time."""
    if setting.rollout == "server":
        engines = max(1, setting.server_gpus // setting.tensor_parallel)
        return math.ceil(setting.generation_batch(machine) / engines)
    return setting.micro_batch * setting.tensor_parallel * setting.accumulation


def cache_space(
    shape: ModelShape, setting: Setting, machine: Machine, overhead: float = OVERHEAD[1]
) -> float:
    """Bytes that are left for keys and values."""
    return setting.utilization * machine.gpu_memory * GIB - weights(shape, setting) - overhead


def concurrent(
    shape: ModelShape, work: Work, setting: Setting, machine: Machine, overhead: float = OVERHEAD[1]
) -> float:
    """Longest sequences that fit the key-value cache together."""
    space = cache_space(shape, setting, machine, overhead)
    return space / cache_per_sequence(shape, work, setting.tensor_parallel)


def least_utilization(shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> float:
    """Smallest utilization with which every completion in hand fits at its full length, in steps of 0.05.

    At least four sequences are counted, so that a small batch does not make a starved engine.
    """
    needed = max(4, sequences(setting, machine)) * cache_per_sequence(shape, work, setting.tensor_parallel)
    share = (weights(shape, setting) + OVERHEAD[1] + needed) / (machine.gpu_memory * GIB)
    return math.ceil(share * 20) / 20
