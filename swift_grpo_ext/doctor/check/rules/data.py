"""The training data as the command names it: that it is there, fills the batches, and ends."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from swift_grpo_ext.doctor.check.facts.files import rows_of
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import fault, grpo, rule
from swift_grpo_ext.findings import ERROR, WARNING, Problem
from swift_grpo_ext.group.cut import groups_in

fault(
    "streaming-without-end",
    ERROR,
    lambda run: run.arguments.streaming and (run.arguments.max_steps or 0) < 1,
    "a stream has no end",
    "--streaming true",
    "--max_steps 1000, or --streaming false",
    symptoms="ValueError: The train_dataset does not implement __len__, so the number of training steps",
    cause="A stream has no length, so the schedule cannot be laid out.",
)
fault(
    "eval-without-rows",
    ERROR,
    lambda run: (
        run.arguments.eval_dataset
        and run.eval_strategy != "no"
        and not run.evaluates
        and not run.arguments.eval_use_evalscope
    ),
    "there are no rows to evaluate on beside the benchmarks",
    "--eval_dataset",
    "--eval_use_evalscope true, or --split_dataset_ratio 0.01",
    symptoms="AssertionError: eval_dataset size 0 is smaller than total_eval_batch_size ...",
    cause="--eval_dataset names benchmarks of EvalScope; the trainer wants rows of its own as well.",
    scope=grpo,
)
fault(
    "best-by-loss",
    WARNING,
    lambda run: run.evaluates and "loss" in (run.arguments.metric_for_best_model or ""),
    "the best checkpoint is chosen by the loss",
    "--metric_for_best_model",
    "--metric_for_best_model eval_reward",
    symptoms="best_model_checkpoint answers no better than the others",
    cause="On-policy the loss of GRPO is 0 by construction, so its least value says nothing about answers.",
    scope=grpo,
)


@rule(
    "dataset-below-a-batch",
    ERROR,
    symptoms=(
        "There seems not to be a single sample in your epoch_iterator, stopping training at step 0!",
        "training ends at step 0 without an error",
    ),
    cause=(
        "A generation batch holds generation_batch_size / num_generations different prompts, and "
        "one that is not full is dropped."
    ),
)
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
        yield Problem(what, "--dataset", "more rows, or a lower --steps_per_generation")


@rule(
    "eval-below-a-batch",
    ERROR,
    symptoms="AssertionError: eval_dataset size ... is smaller than total_eval_batch_size ...",
    cause="ms-swift wants a full batch of different prompts to evaluate on, after the model is loaded.",
)
def _evaluation(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if not run.evaluates or run.evaluated_completions < 1:
        return
    prompts = _evaluated_at_once(run)
    names = args.val_dataset or args.dataset or []
    rows = count(run, names, enough=prompts if args.val_dataset else 10**9)
    if rows is not None and not args.val_dataset:
        rows = _split(rows, args.split_dataset_ratio or 0)
    if rows is not None and rows < prompts:
        where = "--val_dataset" if args.val_dataset else "--split_dataset_ratio"
        fix = "--eval_strategy no, or more rows to evaluate on"
        yield Problem(f"{rows} rows for a batch of {prompts} prompts", where, fix)


def _evaluated_at_once(run: Run) -> int:
    """Prompts of the smallest batch, over all ranks, that an evaluation can be made in."""
    batch = max(1, run.arguments.per_device_eval_batch_size or 1) * run.ranks
    group = run.evaluated_completions
    if group > 1 or "trainer" not in run.parts:
        return batch // group
    # Our trainer makes batches as small as the rows are few; for fewer rows than ranks it samples groups.
    return min(run.ranks, groups_in(batch, run.arguments.num_generations) or run.ranks)


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
    rows = [row for _, row in islice(rows_of(path), enough)]
    return None if not rows or None in rows else len(rows)
