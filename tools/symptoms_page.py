"""Writes ``docs/symptoms.md``: symptom, what to do, cause, from the rules and from what others fix."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.rules import table
from swift_grpo_ext.doctor.check.rules.refused import host_rules
from swift_grpo_ext.findings import Rule

FIXES = Path(__file__).with_name("symptoms_fixes.yaml")
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
            yield Row(symptom, rule.cause, _fix(rule), rule.reports)
    yield from _elsewhere()


def _fix(rule: Rule[Any]) -> str:
    """What the rule tells the user to change; values that hang on the run are an ellipsis."""
    written = yaml.safe_load(FIXES.read_text(encoding="utf-8"))
    if rule.id in written:
        return str(written[rule.id])
    inside = inspect.getclosurevars(rule.look).nonlocals
    if isinstance(inside.get("fix"), str):  # a row of the table
        texts = [re.sub(r"\{[^}]*\}", "…", inside["fix"])]
    else:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(rule.look)))
        # A lambda is written inside of a call, and refuses by a defect, whose fix follows.
        tree = ast.parse(source if source.startswith(("def ", "@")) else "")
        texts = [text for node in ast.walk(tree) if isinstance(node, ast.Call) and (text := _fix_of(node))]
    texts += [DEFECTS[name].fix for name in rule.reports if name in DEFECTS]
    known = dict.fromkeys(text for text in texts if text.strip("… "))
    return "; or ".join(list(known)[:2]) or f"`swift-grpo-ext check` says it for your run (`{rule.id}`)"


def _fix_of(call: ast.Call) -> str:
    name = getattr(call.func, "id", "")
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in ("option", "variable") and len(call.args) == 3:
        form = "--{} {}" if name == "option" else "export {}={}"
        return form.format(_words(call.args[0]), _words(call.args[2]))
    if name == "Problem":
        fix = named.get("fix") or (call.args[2] if len(call.args) > 2 else None)
        return _words(fix) if fix is not None else ""
    return ""


def _words(node: ast.expr) -> str:
    """A text in the code, with an ellipsis for what it fills in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_words(part) for part in node.values)
    return "…"


def as_markdown() -> str:
    """The page."""
    lines = [
        "# Symptoms",
        "",
        "Search this page for the exact error text (Ctrl-F works offline, too). Ids such as A3 are explained "
        "in [Findings](findings.md#the-defects-that-it-started-from). `check` finds most of it before a "
        "run.",
        "",
        "| symptom | what to do | why | reports |",
        "|---|---|---|---|",
        *(
            f"| {_cell(row.symptom)} | {_cell(row.cure)} | {_cell(row.cause)} | {_links(row.reports)} |"
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
