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
        what = (
            f"tensor {sizes[0]} x pipeline {sizes[1]} x context {sizes[2]} parallel = {model} GPUs of a model"
        )
        yield Problem(
            f"{what} do not divide {run.ranks} ranks", "NPROC_PER_NODE", f"a multiple of {model} ranks"
        )
        return
    parts, micro, whole = run.ranks // model, args.micro_batch_size or 1, args.global_batch_size or 1
    if whole % (micro * parts):
        what = f"global_batch_size {whole} is no multiple of micro_batch_size {micro} x {parts} data ranks"
        yield Problem(what, "--global_batch_size", f"a multiple of {micro * parts}")
    asked, steps, group = args.generation_batch_size, args.steps_per_generation, max(1, args.num_generations)
    batch = asked or whole * (steps or 1)
    if batch % whole or (asked and steps and asked != whole * steps):
        what = f"generation_batch_size {batch} is not global_batch_size {whole} x steps_per_generation"
        yield Problem(
            what, "--generation_batch_size", f"a multiple of {whole}, without --steps_per_generation"
        )
    elif batch % group:
        what = f"{batch} completions of a generation batch hold no whole groups of num_generations {group}"
        yield Problem(what, "--global_batch_size", f"a multiple of {group}")
    elif batch // group % (parts * micro):
        what = f"{batch // group} prompts cannot be shared out over {parts} data ranks in micro-batches of"
        fix = f"--global_batch_size {group * parts * micro // max(1, steps or 1)}, or a multiple"
        yield Problem(f"{what} {micro}", "--global_batch_size", fix)
