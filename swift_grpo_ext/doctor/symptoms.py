"""The page ``docs/symptoms.md``: symptom, cause, what we do, from the rules and from what others fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from swift_grpo_ext.deepspeed.lint import table as lint_table
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.rules import table as check_table
from swift_grpo_ext.findings import Rule


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    symptom: str
    cause: str
    cure: str
    reports: tuple[str, ...] = ()


# What no rule of preflight can see: fixed by the trainer, the templates or compat, or watched while running.
ELSEWHERE: tuple[Row, ...] = (
    Row(
        "TypeError: 'NoneType' object is not iterable, in merge_multimodal",
        "GRPO takes the labels off before the forward, and the template's merge needs them.",
        "fixed by compat for every template",
        ("A1",),
    ),
    Row(
        "ValueError: persistent_workers option needs num_workers > 0",
        "ms-swift 4.5.3 keeps dataloader workers by default, also with `--dataloader_num_workers 0`.",
        "fixed by compat (`no-workers`)",
    ),
    Row(
        "There are errors in the template.encode, and another piece of data will be randomly selected.",
        "A row of the dataset is broken; ms-swift prints a traceback and does not say which row it is.",
        "in GRPO the trainer names, counts and replaces it; `SWIFT_GRPO_EXT_BAD_ROW=raise` refuses the run",
    ),
    Row(
        "ValueError: 'aimv2' is already used by a Transformers config, pick another name.",
        "The original Ovis2's remote code registers a name that transformers has taken since.",
        "`swift-grpo-ext convert-ovis2` makes a checkpoint of transformers' own class",
        ("C1",),
    ),
    Row(
        "AssertionError: Check batch related parameters. train_batch_size is not equal to",
        "DeepSpeed counts the ranks before torch.distributed has started: ZeRO-3 over gloo, on a CPU.",
        "call deepspeed.init_distributed('gloo') in a plugin file",
    ),
    Row(
        "ValueError: signal only works in main thread of the main interpreter",
        "ms-swift's `accuracy` limits its parser with a signal, and rewards may run in a thread.",
        "ext_math has its own limit, in a process",
    ),
    Row(
        "Ovis2 learns nothing when --max_length is shorter than prompt and completion",
        "The merge cuts the completion at max_length, and log-probs are read from the wrong positions.",
        "fixed by compat",
        ("A2",),
    ),
    Row(
        "RuntimeError: Number of elements of source < number of ones in mask",
        "The model sampled an image placeholder.",
        "fixed: placeholder ids are forbidden in generation",
        ("C3",),
    ),
    Row(
        "parameters never change although loss is finite; one reward was inf",
        "ms-swift drops non-finite gradients without a word.",
        "fixed: a non-finite reward is not scored, and counted",
        ("B4",),
    ),
    Row(
        "a completion without a score gets the largest or the smallest advantage",
        "A None reward counts as 0.",
        "fixed: baseline and spread over scored members only",
        ("B7",),
    ),
    Row(
        "TypeError, KeyError or IndexError inside a reward function; the other ranks wait",
        "A reward function that raises on one rank leaves the others waiting in a gather.",
        "`swift-grpo-ext check`: error `reward-fails`",
        ("B9",),
    ),
    Row(
        "the run stands still in rewards",
        "A reward function without a time limit waits for something.",
        "`swift-grpo-ext check`: error `reward-hangs`",
        ("B9",),
    ),
    Row(
        "TypeError: __call__() missing 1 required positional argument: 'solution'",
        "The column is not in the data, or ms-swift renamed it: answer becomes response.",
        "`swift-grpo-ext check`: error `reward-column`",
        (),
    ),
    Row(
        "rewards/.../std is 0; reward is the same number in every step",
        "The reward cannot read the gold answer: `accuracy` reads numbers and formulas, no letters.",
        "`swift-grpo-ext check`: error `reward-constant` or `no-variance`",
        ("B3",),
    ),
    Row(
        "reward rises and the answers get worse",
        "The reward scores garbage or wrong answers as high as the gold answer.",
        "`swift-grpo-ext check`: error `gold-does-not-win`",
        (),
    ),
    Row(
        "every completion of a batch has the same reward",
        "A reward that returns one score is broadcast to all completions.",
        "`swift-grpo-ext check`: error `reward-length`",
        ("B8",),
    ),
    Row(
        "FileNotFoundError for an image that lies beside the dataset",
        "ms-swift looks in the working folder and in ROOT_IMAGE_DIR, not beside the dataset.",
        "`swift-grpo-ext check`: error `row-image`",
        (),
    ),
    Row(
        "the dataset has fewer rows than the file",
        "ms-swift drops rows that it cannot read, with a traceback for the first ten only.",
        "`swift-grpo-ext check`: error `row-dropped`",
        (),
    ),
    Row(
        "loss_scale, seed or images differ between ranks: seed_worker() missing 'num_workers' and 'rank'",
        "transformers and its callers disagree about the signature.",
        "fixed by compat: any worker_init_fn is bound with the right values",
        ("A7",),
    ),
    Row(
        "Ovis2: log-probs depend on which rows share a micro-batch",
        "Image tokens expand inside the forward while masks use the frame before.",
        "our native template: a contract test holds its log-probs against the make-up of the batch",
        ("C2",),
    ),
    Row(
        "more image features than image tokens, without an error",
        "masked_scatter takes what it needs and drops the rest.",
        "`swift-grpo-ext check`: error `row-placeholders`",
        ("C5",),
    ),
    Row(
        "boxes are off by a constant factor",
        "Qwen2.5-VL answers in pixels of the resized image, Qwen2-VL and Qwen3-VL in 0 to 1000.",
        "ext_ rewards convert frames; `image_sizes` is handed to every reward",
        ("C6",),
    ),
    Row(
        "groups of the same question on different images are mixed in multi-turn runs",
        "prompt_id ignores images.",
        "fixed by the trainer",
        ("C7",),
    ),
    Row(
        "reward is NaN in the log from some step on",
        "One NaN in a metric poisons the logged window.",
        "fixed by the trainer",
        ("B10",),
    ),
    Row(
        "every step computes log-probs twice although nothing is off-policy",
        "old_per_token_logps equals the policy's own detached log-probs.",
        "left out by the trainer where it is equal",
        ("D1",),
    ),
    Row(
        "start hangs at 'Loading extension module cpu_adam'",
        "On older releases of torch a killed build leaves a lock file in ~/.cache/torch_extensions.",
        "delete ~/.cache/torch_extensions and start again",
    ),
    Row(
        "kl is not in the log; loss is 0 in the first steps",
        "KL is logged only with beta above 0; on-policy the loss is 0 by construction.",
        "no fault: look at reward and at grad_norm",
        ("B6",),
    ),
)


def rows() -> Iterator[Row]:
    """Every symptom, those that preflight finds first, with the links of the defects that it names."""
    for row in _rows():
        known = [DEFECTS[name].reports for name in row.reports if name in DEFECTS]
        links = (link for reports in known for link in reports if link.startswith("https://github.com"))
        yield replace(row, reports=tuple(dict.fromkeys((*row.reports, *links))))


def _rows() -> Iterator[Row]:
    rules: list[Rule[Any]] = [*check_table.rules, *lint_table.rules]
    for rule in rules:
        for symptom in rule.symptoms:
            yield Row(
                symptom,
                rule.cause,
                f"`swift-grpo-ext check`: {rule.severity.value} `{rule.id}`",
                rule.reports,
            )
    yield from ELSEWHERE


def as_markdown() -> str:
    """The page."""
    lines = [
        "# Symptom, cause, what we do",
        "",
        "Search for the exact error text. Made by `python -m swift_grpo_ext.doctor.symptoms`. Ids such as A3 "
        "are explained in [Findings](findings.md#the-defects-that-it-started-from).",
        "",
        "| symptom | cause | what we do | reports |",
        "|---|---|---|---|",
        *(
            f"| {_cell(row.symptom)} | {_cell(row.cause)} | {_cell(row.cure)} | {_links(row.reports)} |"
            for row in rows()
        ),
        "",
    ]
    return "\n".join(lines)


def _links(reports: tuple[str, ...]) -> str:
    return ", ".join(_link(report) if report.startswith("http") else report for report in reports)


def _link(report: str) -> str:
    *_, project, kind, number = report.split("/")
    return f"[{project}#{number}]({report})" if kind in ("issues", "pull") else f"[report]({report})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(as_markdown(), end="")
