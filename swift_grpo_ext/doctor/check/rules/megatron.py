"""Batches and ranks of ``megatron rlhf``."""

from __future__ import annotations

from collections.abc import Iterator

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem

_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


@table.on("megatron-batch")
def _batch(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if not run.megatron:
        return
    sizes = [args.get(name) or 1 for name in _PARALLEL]
    model = sizes[0] * sizes[1] * sizes[2]
    if run.ranks % model:
        shape = f"tensor {sizes[0]} x pipeline {sizes[1]} x context {sizes[2]} parallel"
        what = f"{model} GPUs of a model ({shape}) do not divide {run.ranks} ranks"
        fix = max(model, run.ranks_per_node // model * model)
        yield Problem(what, "NPROC_PER_NODE", f"export NPROC_PER_NODE={fix}")
    elif "global_batch_size" in args.given:
        yield from _sizes(run, run.ranks // model)


def _sizes(run: Run, parts: int) -> Iterator[Problem]:
    """Batches, shared out over so many data parallel ranks."""
    args = run.arguments
    micro, whole = args.micro_batch_size or 1, args.global_batch_size or 1
    if whole % (micro * parts):
        what = f"global_batch_size {whole} is no multiple of micro_batch_size {micro} x {parts} data ranks"
        yield _of_batch(what, micro * parts, whole)
    asked, steps, group = args.generation_batch_size, args.steps_per_generation, max(1, args.num_generations)
    batch = asked or whole * (steps or 1)
    if batch % whole or (asked and steps and asked != whole * steps):
        what = f"generation_batch_size {batch} is not global_batch_size {whole} x steps_per_generation"
        fix = whole * max(1, round(batch / whole))
        yield Problem(what, "--generation_batch_size", f"--generation_batch_size {fix} alone")
    elif batch % group:
        what = f"{batch} completions of a generation batch hold no whole groups of num_generations {group}"
        yield _of_batch(what, group, whole)
    elif batch // group % (parts * micro):
        what = f"{batch // group} prompts cannot be shared out over {parts} data ranks in micro-batches of"
        yield _of_batch(f"{what} {micro}", group * parts * micro, whole)


def _of_batch(what: str, step: int, asked: int) -> Problem:
    """The nearest batch that is a multiple of a step."""
    return Problem(what, "--global_batch_size", f"--global_batch_size {step * max(1, round(asked / step))}")
