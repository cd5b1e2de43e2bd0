"""Batch arithmetic, also of ``megatron rlhf``, rows that fill the batches, and arguments that are refused."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import gcd

from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import (
    anywhere,
    divisors,
    grpo,
    nearest_of,
    option,
    refused,
    rule,
)
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import ERROR, Problem


@rule(
    "args-refused",
    ERROR,
    symptoms=(
        "ValueError: remaining_argv: [...]",
        "error: argument --...: invalid choice",
        "error: argument --...: expected one argument",
        "error: argument --...: invalid int value",
    ),
    cause="ms-swift's parser does not know the argument or its value; names changed between releases.",
    scope=anywhere,
)
def _args_refused(run: Run) -> Iterable[Problem]:
    return run.arguments.refusals


@rule(
    "generation-batch",
    ERROR,
    symptoms=(
        "generation_batch_size (...) must be evenly divisible by num_generations (...)",
        "generation_batch_size (...) must be divisible by the global batch size (...)",
    ),
    cause="A batch of ranks x per_device_train_batch_size x steps_per_generation holds whole groups.",
    scope=grpo,
)
def _generation_batch(run: Run) -> Iterator[Problem]:
    args = run.arguments
    step = run.micro_batch * run.ranks
    size = args.generation_batch_size
    steps = args.steps_per_generation
    if size and size % step:
        what = f"{size} is not divisible by {run.ranks} ranks x {run.micro_batch} = {step}"
        yield option("generation_batch_size", what, step * max(1, round(size / step)))
    elif size and steps and size != step * steps:
        what = f"it is not steps_per_generation {steps} x {step} = {step * steps}"
        yield option("generation_batch_size", what, f"{size}, without --steps_per_generation")
    else:
        yield from _whole_groups(step * run.steps_per_generation, run)


def _whole_groups(batch: int, run: Run) -> Iterator[Problem]:
    group = run.arguments.num_generations
    if group > 1 and batch % group:
        valid = divisors(batch, least=2)
        steps = group // gcd(group, run.ranks * run.micro_batch)
        name = "steps_per_generation" if run.arguments.steps_per_generation else "gradient_accumulation_steps"
        more = f"--{name} {steps * max(1, round(run.steps_per_generation / steps))}"
        yield Problem(
            f"{run.ranks} ranks x {run.micro_batch} x {run.steps_per_generation} = "
            f"{batch} completions do not make whole groups of {group}{f', only of {valid}' if valid else ''}",
            "--num_generations" if valid else "--per_device_train_batch_size",
            f"--num_generations {nearest_of(valid, group)}, or {more}" if valid else more,
        )


@rule(
    "real-cuts-groups",
    ERROR,
    symptoms="shape '[-1, ...]' is invalid for input of size ...",
    cause="REAL compares the completions of a group, so each micro-batch holds whole groups.",
    reports="F16",
    scope=anywhere,
)
def _parts_of_groups(run: Run) -> Iterator[Problem]:
    losses = run.arguments.loss_type
    loss = losses[0] if isinstance(losses, list) else losses
    with suppress(SwiftGrpoExtError):  # of which other rules tell
        size = run.arguments.micro_batch_size if run.megatron else run.micro_batch
        yield from refused(run, "F16", loss_type=loss, per_device_train_batch_size=size)


@rule(
    "eval-batch",
    ERROR,
    symptoms="The global eval batch size (...) must be evenly divisible by num_generations_eval (...)",
    cause="Evaluation samples groups as well, so its batch holds whole groups too.",
    scope=grpo,
)
def _eval_batch(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if not run.evaluates:
        return
    group = run.evaluated_completions
    batch = max(1, args.per_device_eval_batch_size or 1) * run.ranks
    if group > 1 and batch % group:
        what = f"{run.ranks} ranks x {args.per_device_eval_batch_size} = {batch} is not divisible by {group}"
        valid = nearest_of(divisors(batch, least=2), group)
        yield Problem(what, "--per_device_eval_batch_size", f"--num_generations_eval {valid}")


@rule(
    "sequence-parallel",
    ERROR,
    symptoms="RuntimeError: Mesh should not be bigger than default world size",
    cause=(
        "The ranks are laid out as a mesh of whole sequences, so the sequence parallel size "
        "divides their number."
    ),
)
def _sequence_parallel(run: Run) -> Iterator[Problem]:
    size = run.arguments.sequence_parallel_size or 1
    if size > 1 and run.ranks % size:
        what = f"sequences in {size} parts do not divide {run.ranks} ranks"
        yield option("sequence_parallel_size", what, nearest_of(divisors(run.ranks), size))
