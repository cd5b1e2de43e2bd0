"""Batch arithmetic, also of ``megatron rlhf``, rows that fill the batches, and arguments that are refused."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import gcd
from pathlib import Path

from swift_grpo_ext.doctor.check.files import rows_of
from swift_grpo_ext.doctor.check.rules.table import divisors, nearest_of, option, table, variable
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import RefusedError, SwiftGrpoExtError
from swift_grpo_ext.findings import Problem
from swift_grpo_ext.group.batch_sizes import SWITCH, BatchSizes, grouped
from swift_grpo_ext.losses import loss_named

table.on("args-refused")(lambda run: run.arguments.refusals)


@table.on("generation-batch")
def _generation_batch(run: Run) -> Iterator[Problem]:
    args = run.arguments
    step = run.micro_batch * run.ranks
    asked, steps = args.generation_batch_size, args.steps_per_generation
    if asked and asked % step:
        what = f"{asked} is not divisible by {run.ranks} ranks x {run.micro_batch} = {step}"
        yield option("generation_batch_size", what, step * max(1, round(asked / step)))
    elif asked and steps and asked != step * steps:
        what = f"generation_batch_size {asked} and steps_per_generation {steps} disagree: {step} x {steps} = "
        fix = f"{asked}, without --steps_per_generation"
        yield option("generation_batch_size", f"{what}{step * steps}", fix)
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
            f"{batch} completions hold no whole groups of {group}{f', only of {valid}' if valid else ''}",
            "--num_generations",
            f"--num_generations {nearest_of(valid, group)}, or {more}" if valid else more,
        )


@table.on("real-cuts-groups")
def _parts_of_groups(run: Run) -> Iterator[Problem]:
    group, names = run.arguments.num_generations, run.arguments.loss_type
    names = names if isinstance(names, (list, tuple)) else [names]
    loss = next((name for name in names if loss_named(str(name)).whole_groups), None)
    if loss is None:
        return
    with suppress(SwiftGrpoExtError):  # of which other rules tell
        size = run.arguments.micro_batch_size if run.megatron else _sizes(run).batch
        if size % group:
            what = f"micro-batches of {size} hold parts of groups of {group}; loss_type {loss} needs whole"
            name = "micro_batch_size" if run.megatron else "per_device_train_batch_size"
            more = "" if run.megatron else f", or {SWITCH}=1 alone"
            yield option(name, what, f"{-(-size // group) * group}{more}")


@table.on("group-batch")
def _group_batch(run: Run) -> Iterator[Problem]:
    with suppress(SwiftGrpoExtError):  # a setting, of which another rule tells
        try:
            _sizes(run)
        except RefusedError as refusal:
            yield Problem(refusal.what, refusal.where, refusal.fix)


def _sizes(run: Run) -> BatchSizes:
    """How a rank will cut its completions."""
    asked = BatchSizes(run.micro_batch, run.accumulation, run.steps_per_generation)
    settings, group = run.settings, run.arguments.num_generations
    if not settings.group_batch or "trainer" not in run.parts or group < 2:
        return asked
    return grouped(asked, group, run.arguments.max_completion_length, settings.group_batch_tokens)


@table.on("eval-batch")
def _eval_batch(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if not run.evaluates:
        return
    group = args.num_generations_eval or args.num_generations
    batch = max(1, args.per_device_eval_batch_size or 1) * run.ranks
    if group > 1 and batch % group:
        what = f"{run.ranks} ranks x {args.per_device_eval_batch_size} = {batch} is not divisible by {group}"
        valid = nearest_of(divisors(batch, least=2), group)
        yield Problem(what, "--per_device_eval_batch_size", f"--num_generations_eval {valid}")


@table.on("reward-weights")
def _weights(run: Run) -> Iterator[Problem]:
    args = run.arguments
    sources = len(args.reward_funcs or []) + len(args.reward_model or [])
    sources += bool(args.use_gym_env or (args.use_gym_env is None and args.gym_env))
    if args.reward_weights is not None and len(args.reward_weights) != sources:
        what, weights = f"{len(args.reward_weights)} weights for {sources} rewards", args.reward_weights
        fix = " ".join(f"{weight:g}" for weight in [*weights, *[1.0] * sources][:sources])
        yield option("reward_weights", what, fix)


@table.on("accumulation-and-generation")
def _accumulation(run: Run) -> Iterator[Problem]:
    accumulation, steps = run.accumulation, run.steps_per_generation
    if accumulation % steps:
        what = f"accumulation {accumulation} is not a multiple of steps_per_generation {steps}"
        yield option("gradient_accumulation_steps", what, -(-accumulation // steps) * steps)


@table.on("sequence-parallel")
def _sequence_parallel(run: Run) -> Iterator[Problem]:
    size = run.arguments.sequence_parallel_size or 1
    if size > 1 and run.ranks % size:
        what = f"sequences in {size} parts do not divide {run.ranks} ranks"
        yield option("sequence_parallel_size", what, nearest_of(divisors(run.ranks), size))


_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


@table.on("megatron-batch")
def _megatron_batch(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if not run.megatron:
        return
    sizes = [args.get(name) or 1 for name in _PARALLEL]
    model = sizes[0] * sizes[1] * sizes[2]
    if run.ranks % model:
        shape = f"tensor {sizes[0]} x pipeline {sizes[1]} x context {sizes[2]} parallel"
        what = f"{model} GPUs of a model ({shape}) do not divide {run.ranks} ranks"
        yield variable("NPROC_PER_NODE", what, max(model, run.ranks_per_node // model * model))
    elif "global_batch_size" in args.given:
        yield from _megatron_sizes(run, run.ranks // model)


def _megatron_sizes(run: Run, parts: int) -> Iterator[Problem]:
    """Batches, shared out over so many data parallel ranks."""
    args = run.arguments
    micro, whole = args.micro_batch_size or 1, args.global_batch_size or 1
    if whole % (micro * parts):
        what = f"global_batch_size {whole} is not a multiple of micro_batch_size {micro} x {parts} data ranks"
        yield _nearest_batch(what, micro * parts, whole)
    asked, steps, group = args.generation_batch_size, args.steps_per_generation, max(1, args.num_generations)
    batch = asked or whole * (steps or 1)
    if batch % whole or (asked and steps and asked != whole * steps):
        what = f"generation_batch_size {batch} is not global_batch_size {whole} x steps_per_generation"
        yield option("generation_batch_size", what, f"{whole * max(1, round(batch / whole))} alone")
    elif batch % group:
        what = f"{batch} completions of a generation batch hold no whole groups of num_generations {group}"
        yield _nearest_batch(what, group, whole)
    elif batch // group % (parts * micro):
        what = f"{batch // group} prompts cannot be shared out over {parts} data ranks in micro-batches of"
        yield _nearest_batch(f"{what} {micro}", group * parts * micro, whole)


def _nearest_batch(what: str, step: int, asked: int) -> Problem:
    """The nearest batch that is a multiple of a step."""
    return option("global_batch_size", what, step * max(1, round(asked / step)))


@table.on("dataset-below-a-batch")
def _training(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if args.streaming or args.num_generations < 1:
        return
    prompts = run.ranks * run.micro_batch * run.steps_per_generation // args.num_generations
    rows = count(run, args.dataset or [], enough=2 * prompts)
    if rows is None:
        return
    if not args.val_dataset and run.evaluates:
        rows -= _split(rows, args.split_dataset_ratio or 0)
    if 0 < rows < prompts:
        what = f"{rows} rows for a generation batch of {prompts} prompts: no batch is ever full"
        yield Problem(what, "--dataset", f"{_smaller(run, rows)}, or more rows")


@table.on("eval-below-a-batch")
def _evaluation(run: Run) -> Iterator[Problem]:
    args = run.arguments
    group = args.num_generations_eval or args.num_generations
    if not run.evaluates or group < 1:
        return
    prompts = max(1, args.per_device_eval_batch_size or 1) * run.ranks // group
    names = args.val_dataset or args.dataset or []
    rows = count(run, names, enough=prompts if args.val_dataset else 10**9)
    if rows is not None and not args.val_dataset:
        rows = _split(rows, args.split_dataset_ratio or 0)
    if rows is not None and rows < prompts:
        where = "--val_dataset" if args.val_dataset else "--split_dataset_ratio"
        fix = "--eval_strategy no, or more rows to evaluate on"
        yield Problem(f"{rows} rows for a batch of {prompts} prompts", where, fix)


def _smaller(run: Run, rows: int) -> str:
    """A generation batch that the rows fill, in whole groups where there is one."""
    group, step = run.arguments.num_generations, run.ranks * run.micro_batch
    steps = [n for n in range(1, rows * group // step + 1) if step * n % group == 0]
    return f"--steps_per_generation {steps[-1]}" if steps else "a smaller --per_device_train_batch_size"


def _split(rows: int, ratio: float) -> int:
    """Rows that the host takes out of the training data to evaluate on."""
    return max(1, int(rows * ratio)) if rows else 0


def count(run: Run, names: Sequence[str], *, enough: int) -> int | None:
    """Rows of JSON files together, at most about ``enough`` of each; None if some dataset is no such file."""
    total = 0
    for name in names:
        path, number = run.dataset(name)
        rows = number if number is not None else _rows(path, enough) if path else None
        if rows is None:
            return None
        total += rows
    return total if names else None


def _rows(path: Path, enough: int) -> int | None:
    if not path.is_file() or path.suffix not in (".jsonl", ".json"):
        return None
    if path.suffix == ".jsonl":  # lines are not parsed, there may be millions
        with path.open(encoding="utf-8", errors="replace") as file:
            return sum(1 for _ in islice((line for line in file if line.strip()), enough))
    found = [row for _, row in islice(rows_of(path), enough)]
    return None if not found or None in found else len(found)
