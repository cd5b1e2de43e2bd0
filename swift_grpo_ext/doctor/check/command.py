"""``swift-grpo-ext check``: collects the facts, applies the rules, prints what they found."""

import json
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console

from swift_grpo_ext.doctor.check import inputs
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules import table
from swift_grpo_ext.doctor.check.rules.refused import OF_BATCHES, refusals
from swift_grpo_ext.errors import SwiftGrpoExtError, in_a_line
from swift_grpo_ext.findings import Finding, Severity, exit_code, not_known_here, worst_first

COULD_NOT_CHECK = 3
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_MOST_NAMES = 5  # of what was not checked, and letters of them
_MOST_LETTERS = 120


@dataclass(frozen=True)
class Verdict:
    """What was found, worst first."""

    findings: tuple[Finding, ...]  # each fault once
    code: int  # 0: no problems in what could be checked, 1: warnings, 2: it will fail, 3: could not check
    runs: tuple[Run, ...] = ()  # what could be read

    @property
    def closing(self) -> str:
        """The last line: the verdict, and what could not be looked at, in a few words each."""
        names = list(dict.fromkeys(finding.not_checked for finding in self.findings if finding.not_checked))
        count = sum(finding.severity is Severity.ERROR for finding in self.findings)
        errors = f"it will fail: {count} error{'s' * (count > 1)}"
        verdict = {0: "no problems found in what could be checked", 2: errors}.get(
            self.code, "see the warnings"
        )
        shown = [name[:60] for name in names[:_MOST_NAMES]]
        while len(", ".join(shown)) > _MOST_LETTERS:
            shown.pop()
        more = [f"{len(names) - len(shown)} more"] * (len(names) > len(shown))
        return f"{verdict}; not checked: {', '.join([*shown, *more])}" if names else verdict


def findings_of(run: Run) -> list[Finding]:
    """Everything that preflight finds in a run, worst first, each fault once."""
    unread = [
        f"--{name}" for name in OF_BATCHES if name in run.arguments.given and not run.arguments.is_known(name)
    ]
    return worst_first(_once([*table.judged(run), *map(not_known_here, unread)]))


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """The first of each fault: a name that nobody registers is found before and after the plugins."""
    first = {(finding.rule, finding.what, finding.where): finding for finding in reversed(findings)}
    return list(first.values())[::-1]


def _cut(finding: Finding) -> Finding:
    """A finding in one line, without words that nobody reads."""
    texts: dict[str, Any] = {name: getattr(finding, name) for name in ("what", "where", "fix", "not_checked")}
    plain = {
        name: re.sub(r"\S{200,}", lambda word: f"{word[0][:197]}...", text) for name, text in texts.items()
    }
    lines: dict[str, Any] = {name: " ".join(text.split("\n")) for name, text in plain.items()}
    return replace(finding, **lines)


def verdict_of(words: Sequence[str], **options: Any) -> Verdict:
    """Check a command line, a script or a configuration file by the rules of this package.

    ``options`` are `gpu_memory`, and fields of `Run`.
    """
    try:
        gpu_memory = options.pop("gpu_memory", 0)
        runs = [replace(run, **options) for run in inputs.runs(words, gpu_memory=gpu_memory)]
        findings = worst_first(_once([finding for run in runs for finding in findings_of(run)]))
    except SwiftGrpoExtError as error:
        return Verdict((_cut(not_known_here(error.what, error.where, error.fix)),), COULD_NOT_CHECK)
    return Verdict(tuple(map(_cut, findings)), exit_code(findings), tuple(runs))


def check(
    words: Sequence[str],
    *,
    as_json: bool = False,
    show_all: bool = False,
    quick: bool = False,
    console: Console | None = None,
    **options: Any,
) -> int:
    """Check, and print what was found: first by the rules of this package, then what ms-swift itself refuses.

    ``quick`` leaves ms-swift out, ``options`` are those of `verdict_of`. Returns the exit code: 0 nothing was
    found in what could be checked, 1 warnings, 2 the run will fail, 3 nothing could be checked.
    """
    console = console or Console(soft_wrap=True)
    if not host_table.is_kept() and not as_json:
        print(
            "The first check of an installation asks ms-swift what it takes: half a minute.", file=sys.stderr
        )
    try:
        with redirect_stdout(sys.stderr):  # what packages print
            verdict = verdict_of(words, **options)
        if not as_json:
            _print(verdict, console, show_all=show_all)
        if verdict.runs:
            own = verdict.findings
            left_out = not_known_here("ms-swift's own checks (--quick)")
            more = [left_out] if quick else list(map(_cut, refusals(verdict.runs, own)))
            verdict = replace(verdict, findings=(*own, *more), code=exit_code((*own, *more)))
            if not as_json:
                _print(replace(verdict, findings=tuple(more)), console, show_all=show_all)
                console.print(verdict.closing, style="bold", markup=False, highlight=False, soft_wrap=True)
    except Exception as error:  # ours, of which a user needs one line
        note = not_known_here(f"check itself fails: {in_a_line(error)[:200]}", fix="report it")
        verdict = Verdict((note,), COULD_NOT_CHECK)
        if not as_json:
            _print(verdict, console, show_all=show_all)
    if as_json:
        print(json.dumps([asdict(finding) for finding in verdict.findings], indent=1, ensure_ascii=False))
    return verdict.code


def _print(verdict: Verdict, console: Console, *, show_all: bool) -> None:
    for finding in verdict.findings:
        label = f"{finding.severity.value:8}"
        colour = _COLOURS[finding.severity]
        if verdict.code == COULD_NOT_CHECK:
            label = "could not check: "
            colour = ""
        elif finding.severity is Severity.NOTE and not show_all:
            continue
        place = f" [{finding.where}]" if finding.where else ""
        fix = f"\n        -> {finding.fix}" if finding.fix else ""
        text = f"{label}{finding.what}{place}{fix}"
        console.print(text, style=colour, markup=False, highlight=False, soft_wrap=True)
