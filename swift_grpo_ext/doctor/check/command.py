"""``swift-grpo-ext check``: collects the facts, applies the rules, prints what they found."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from rich.console import Console

from swift_grpo_ext.doctor.check import inputs
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules import table
from swift_grpo_ext.doctor.check.rules.refused import refusals
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Finding, Severity, exit_code, not_known_here, worst_first

COULD_NOT_CHECK = 3
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@dataclass(frozen=True)
class Verdict:
    """What was found, worst first."""

    findings: tuple[Finding, ...]  # each fault once
    code: int  # 0: no problems in what could be checked, 1: warnings, 2: it will fail, 3: could not check
    runs: tuple[Run, ...] = ()  # what could be read

    @property
    def closing(self) -> str:
        """The last line: the verdict, and what could not be looked at, in a few words each."""
        names = dict.fromkeys(finding.not_checked for finding in self.findings if finding.not_checked)
        count = sum(finding.severity is Severity.ERROR for finding in self.findings)
        errors = f"it will fail: {count} error{'s' * (count > 1)}"
        warned = "it should run; see the warnings"
        verdict = {0: "no problems found in what could be checked", 2: errors}.get(self.code, warned)
        return f"{verdict}; not checked: {', '.join(names)}" if names else verdict


def findings_of(run: Run) -> list[Finding]:
    """Everything that preflight finds in a run, worst first, each fault once."""
    places = dict.fromkeys(run.launch.not_followed)
    unread = [not_known_here(f"swift rlhf in {place}") for place in places]
    findings = table.judged(run)
    said = {(finding.rule, finding.where) for finding in findings}
    more = (finding for finding in _as_written(run) if (finding.rule, finding.where) not in said)
    return worst_first(_once([*findings, *more, *unread]))


def _as_written(run: Run) -> Iterator[Finding]:
    """What holds of a command that ends with ``"$@"``, unless that takes another value: a warning.

    A fault of an option that is not written may be one of what is not: it is left out.
    """
    for finding in table.judged(run.as_written) if run.arguments.open else ():
        option = finding.where.partition(" ")[0]
        is_written = not option.startswith("--") or option[2:] in run.arguments.given
        if is_written and finding.severity is not Severity.NOTE:
            what = f"{finding.what}, unless {' '.join(run.arguments.open)} says otherwise"
            yield replace(finding, what=what, severity=Severity.WARNING)


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """The first of each fault: a name that nobody registers is found before and after the plugins."""
    first = {(finding.rule, finding.what, finding.where): finding for finding in reversed(findings)}
    return list(first.values())[::-1]


def verdict_of(
    words: Sequence[str], *, row_limit: int = 32, gpu_memory: float = 0, cpu_memory: float = 0
) -> Verdict:
    """Check a command line, a script or a configuration file by the rules of this package."""
    try:
        read = inputs.runs(words, gpu_memory=gpu_memory)
        runs = [replace(run, cpu_memory=cpu_memory or run.cpu_memory, row_limit=row_limit) for run in read]
    except SwiftGrpoExtError as error:
        return Verdict((not_known_here(error.what, error.where, error.fix),), COULD_NOT_CHECK)
    findings = worst_first(_once([finding for run in runs for finding in findings_of(run)]))
    return Verdict(tuple(findings), exit_code(findings), tuple(runs))


def check(
    words: Sequence[str],
    *,
    as_json: bool = False,
    show_all: bool = False,
    quick: bool = False,
    row_limit: int = 32,
    gpu_memory: float = 0,
    cpu_memory: float = 0,
    console: Console | None = None,
) -> int:
    """Check, and print what was found: first by the rules of this package, then what ms-swift itself refuses.

    ``quick`` leaves ms-swift out. Returns the exit code: 0 nothing was found in what could be checked,
    1 warnings, 2 the run will fail, 3 nothing could be checked.
    """
    console = console or Console(soft_wrap=True)
    with _others_to_stderr():
        verdict = verdict_of(words, row_limit=row_limit, gpu_memory=gpu_memory, cpu_memory=cpu_memory)
    findings = verdict.findings
    if not as_json:
        _print(verdict, console, show_all=show_all)
    if verdict.runs:
        left_out = not_known_here("ms-swift's own checks (--quick)")
        findings += tuple([left_out] if quick else refusals(verdict.runs, findings))
        first = len(verdict.findings)
        verdict = replace(verdict, findings=findings, code=exit_code(findings))
        if not as_json:
            _print(replace(verdict, findings=findings[first:]), console, show_all=show_all)
            console.print(verdict.closing, style="bold", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1, ensure_ascii=False))
    return verdict.code


@contextmanager
def _others_to_stderr() -> Iterator[None]:
    """What packages and child processes print to stdout goes to stderr."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # no such descriptor, as in some servers
        yield
        return
    python_out, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = python_out
        os.dup2(kept, 1)
        os.close(kept)


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
