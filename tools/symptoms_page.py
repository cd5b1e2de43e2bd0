"""Writes ``docs/symptoms.md``: symptom, cause, what we do, from the rules and from what others fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.rules import table
from swift_grpo_ext.doctor.check.rules.refused import host_rules

PAGE = Path(__file__).parents[1] / "docs" / "symptoms.md"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    symptom: str
    cause: str
    cure: str
    reports: tuple[str, ...] = ()


def _elsewhere() -> Iterator[Row]:
    """What no rule of preflight can see."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    for row in yaml.safe_load(text):
        yield Row(row["symptom"], row["cause"], row["cure"], tuple(row.get("reports", ())))


def rows() -> Iterator[Row]:
    """Every symptom, those that preflight finds first, with the links of the defects that it names."""
    for row in _rows():
        known = [DEFECTS[name].reports for name in row.reports if name in DEFECTS]
        links = (link for reports in known for link in reports if link.startswith("https://github.com"))
        yield replace(row, reports=tuple(dict.fromkeys((*row.reports, *links))))


def _rows() -> Iterator[Row]:
    for rule in (*table.rules, *host_rules.rules):
        for symptom in rule.symptoms:
            yield Row(
                symptom,
                rule.cause,
                f"`swift-grpo-ext check`: {rule.severity.value} `{rule.id}`",
                rule.reports,
            )
    yield from _elsewhere()


def as_markdown() -> str:
    """The page."""
    lines = [
        "# Symptom, cause, what we do",
        "",
        "Search for the exact error text. Made by `python tools/symptoms_page.py`. Ids such as A3 "
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
    PAGE.write_text(as_markdown(), encoding="utf-8")
