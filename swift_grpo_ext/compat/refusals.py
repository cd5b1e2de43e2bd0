"""Refuse runs known to crash, hang or learn nothing, by their configuration, before a model loads."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.findings import Problem
from swift_grpo_ext.losses import loss_named


@dataclass(frozen=True)
class RefusableRun:
    """Input of the rules: ms-swift's arguments by their own names, and versions."""

    arguments: Mapping[str, Any]  # values of ms-swift's flags
    # the section zero_optimization of the DeepSpeed config, empty without DeepSpeed
    zero: Mapping[str, Any] = field(default_factory=dict)
    world_size: int = 1  # number of ranks
    healed: frozenset[str] = frozenset()  # ids of the patches that are, or will be, in place
    # versions by distribution, in place of the installed ones
    versions: Mapping[str, str | None] = field(default_factory=dict)


def _tp_does_not_divide(run: RefusableRun) -> Problem | None:
    size = run.arguments.get("vllm_tensor_parallel_size") or 1
    if run.arguments.get("vllm_mode") != "colocate" or run.world_size % size == 0:
        return None
    return Problem(
        f"{run.world_size} ranks cannot be cut into tensor-parallel groups of {size}",
        f"vllm_tensor_parallel_size {size}, NPROC_PER_NODE x NNODES {run.world_size}",
        f"--vllm_tensor_parallel_size with a divisor of {run.world_size}",
    )


def _loses_micro_batches(run: RefusableRun) -> Problem | None:
    micro_batches = run.arguments.get("gradient_accumulation_steps") or 1
    stage = run.zero.get("stage")
    offload = run.zero.get("offload_optimizer") or {}
    offloads = offload.get("device", "none") not in (None, "none") or run.zero.get("cpu_offload")
    loses = stage in (1, 2) and offloads and micro_batches > 1
    if not loses or not DEFECTS["B1"].harms(run.versions, run.healed):
        return None
    return Problem(
        f"of {micro_batches} micro-batches per step only the first and the last would count",
        f"ZeRO-{stage} with offload_optimizer and gradient_accumulation_steps {micro_batches}",
        DEFECTS["B1"].fix,
    )


def _cuts_labelled_groups(run: RefusableRun) -> Problem | None:
    loss = run.arguments.get("loss_type") or "grpo"
    batch = run.arguments.get("per_device_train_batch_size") or 0
    group = run.arguments.get("num_generations") or 1
    if not loss_named(loss).whole_groups or batch % group == 0:
        return None
    return Problem(
        f"REAL compares the completions of a group, and micro-batches of {batch} hold parts of groups of "
        f"{group}",
        f"loss_type {loss}, per_device_train_batch_size {batch}",
        f"--per_device_train_batch_size with a multiple of {group}",
    )


def _streams_rows(run: RefusableRun) -> Problem | None:
    if not run.arguments.get("streaming"):
        return None
    return Problem("a group of a stream would hold different prompts", "--streaming true", DEFECTS["F18"].fix)


def _ignores_the_environment(run: RefusableRun) -> Problem | None:
    named = run.arguments.get("gym_env")
    if run.arguments.get("use_vllm") or not (named or run.arguments.get("use_gym_env")):
        return None
    where = f"gym_env {named}" if named else "use_gym_env true"
    return Problem(DEFECTS["F22"].what, f"{where}, use_vllm false", DEFECTS["F22"].fix)


# By the defect that the run would meet.
REFUSALS: dict[str, Callable[[RefusableRun], Problem | None]] = {
    "A9": _tp_does_not_divide,
    "B1": _loses_micro_batches,
    "F16": _cuts_labelled_groups,
    "F18": _streams_rows,
    "F22": _ignores_the_environment,
}


def refuse(run: RefusableRun) -> None:
    """Raise the first reason why a run must not start.

    Raises:
        RefusedError: There is one.
    """
    for defect, look in REFUSALS.items():
        if problem := look(run):
            fix = f"{problem.fix} ({DEFECTS[defect].reports[0]})"
            raise RefusedError(f"{defect}: {problem.what}", where=problem.where, fix=fix)


def world_size() -> int:
    """Number of ranks that the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1"))
