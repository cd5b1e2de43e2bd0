"""Rows against the batches that they must fill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from swift_grpo_ext.doctor.check.files import drawn, rows_of
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem


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


@table.on("eval-without-rows")
def _no_rows(run: Run) -> Iterator[Problem]:
    args = run.arguments
    strategy = str(args.eval_strategy or args.save_strategy or "").rsplit(".", 1)[-1].lower()
    if args.eval_dataset and strategy != "no" and not run.evaluates and not args.eval_use_evalscope:
        what = "there are no rows to evaluate on beside the benchmarks"
        yield Problem(what, "--eval_dataset", "--eval_use_evalscope true, or --split_dataset_ratio 0.01")


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
        base, number = drawn(name) if run.find(name) is None else (name, None)
        path = run.find(base)
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
