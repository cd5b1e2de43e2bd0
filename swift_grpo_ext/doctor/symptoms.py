"""The page ``docs/symptoms.md``: symptom, cause, what we do, from the rules and from what others heal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from swift_grpo_ext.deepspeed.lint import table as lint_table
from swift_grpo_ext.doctor.check.rules import table as check_table
from swift_grpo_ext.findings import Rule


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    symptom: str
    cause: str
    cure: str
    reports: tuple[str, ...] = ()


# What no rule of preflight can see: healed by the trainer, the templates or compat, or watched while running.
ELSEWHERE: tuple[Row, ...] = (
    Row(
        "TypeError: 'NoneType' object is not iterable, in merge_multimodal",
        "GRPO takes the labels off before the forward, and the template's merge needs them.",
        "healed by compat for every template",
        ("A1",),
    ),
    Row(
        "Ovis2 learns nothing when --max_length is shorter than prompt and completion",
        "The merge cuts the completion at max_length, and log-probs are read from the wrong positions.",
        "healed by compat",
        ("A2",),
    ),
    Row(
        "RuntimeError: Number of elements of source < number of ones in mask",
        "The model sampled an image placeholder.",
        "healed: placeholder ids are forbidden in generation",
        ("C3",),
    ),
    Row(
        "parameters never change although loss is finite; one reward was inf",
        "The host drops non-finite gradients without a word.",
        "healed: a non-finite reward is not scored, and counted",
        ("B4",),
    ),
    Row(
        "a completion without a score gets the largest or the smallest advantage",
        "A None reward counts as 0.",
        "healed: baseline and spread over scored members only",
        ("B7",),
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
    """Every symptom, those that preflight finds first."""
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
        "Search for the exact error text. Made by `python -m swift_grpo_ext.doctor.symptoms`.",
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
    return ", ".join(
        f"[{report.split('/')[-3]}#{report.split('/')[-1]}]({report})"
        if report.startswith("http")
        else report
        for report in reports
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(as_markdown(), end="")
