"""``swift-grpo-ext check``: collects the facts, applies the rules, prints their findings."""

import json
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from typing import Any

from swift_grpo_ext.doctor.check import inputs
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules import table
from swift_grpo_ext.doctor.check.rules.refused import refusals, unread
from swift_grpo_ext.errors import SwiftGrpoExtError, in_a_line
from swift_grpo_ext.findings import Finding, Severity, exit_code, not_known_here, worst_first

COULD_NOT_CHECK = 3
_MOST_NAMES = 5  # of what was not checked, and letters of them
_MOST_LETTERS = 120


@dataclass(frozen=True)
class Verdict:
    """The findings, worst first."""

    findings: tuple[Finding, ...]  # each fault once
    runs: tuple[Run, ...] = ()  # those that could be read

    @property
    def code(self) -> int:
        """0: no problems in what could be checked, 1: warnings, 2: it will fail, 3: could not check."""
        return exit_code(self.findings) if self.runs else COULD_NOT_CHECK

    @property
    def closing(self) -> str:
        """The last line: the verdict, and a short list of what could not be checked."""
        count = sum(finding.severity is Severity.ERROR for finding in self.findings)
        errors = f"it will fail: {count} error{'s' * (count > 1)}"
        words = ("no problems found in what could be checked", "see the warnings", errors, "")[self.code]
        names = list(dict.fromkeys(each.not_checked[:60] for each in self.findings if each.not_checked))
        shown = names[:_MOST_NAMES]
        while len(", ".join(shown)) > _MOST_LETTERS:
            shown.pop()
        more = [f"{len(names) - len(shown)} more"] * (len(names) > len(shown))
        return f"{words}; not checked: {', '.join([*shown, *more])}" if names else words


def findings_of(run: Run) -> list[Finding]:
    """All findings of preflight for a run."""
    return [*table.judged(run), *(not_known_here(f"--{name}") for name in unread(run))]


def _cut(finding: Finding) -> Finding:
    """A finding in one line, with very long words cut."""
    texts: dict[str, Any] = {
        name: re.sub(r"(\S{197})\S{3,}", r"\1...", getattr(finding, name)).replace("\n", " ")
        for name in ("what", "where", "fix", "not_checked")
    }
    return replace(finding, **texts)


def verdict_of(words: Sequence[str], *, gpu_memory: float = 0, **options: Any) -> Verdict:
    """Check a command line, a script or a configuration file by the rules of this package.

    ``gpu_memory`` is in GiB, 0 for that of this machine; ``options`` are other fields of `Run`.
    """
    options |= {"gpu_memory": gpu_memory} if gpu_memory else {}
    try:
        runs = [replace(run, **options) for run in inputs.runs(words)]
    except SwiftGrpoExtError as error:
        return Verdict((_cut(not_known_here(error.what, error.where, error.fix)),))
    # Each fault once: with plugins an unregistered name is found twice.
    findings = {(each.rule, each.what, each.where): each for run in runs for each in findings_of(run)}
    return Verdict(tuple(map(_cut, worst_first(findings.values()))), tuple(runs))


def check(words: Sequence[str], *, as_json: bool = False, quick: bool = False, **options: Any) -> int:
    """Check and print the findings: first of this package's rules, then what ms-swift itself refuses.

    ``quick`` skips ms-swift, ``options`` are those of `verdict_of`. Returns the exit code: 0 no problem found
    in what could be checked, 1 warnings, 2 the run will fail, 3 nothing could be checked.
    """
    if not host_table.is_kept():
        print(
            "The first check of an installation asks ms-swift what it takes: half a minute.", file=sys.stderr
        )
    try:
        with redirect_stdout(sys.stderr):  # for output of imported packages
            verdict = verdict_of(words, **options)
        _print(verdict, as_json)
        if verdict.runs:
            left_out = ["rows"] * (not verdict.runs[0].row_limit) + ["ms-swift's own checks (--quick)"]
            asked = map(not_known_here, left_out) if quick else refusals(verdict.runs)
            more = Verdict(tuple(map(_cut, asked)), verdict.runs)
            verdict = Verdict(verdict.findings + more.findings, verdict.runs)
            _print(more, as_json)
    except Exception as error:  # a bug of ours: one line is enough for the user
        verdict = Verdict((not_known_here(f"check itself fails: {in_a_line(error)[:200]}", fix="report it"),))
        _print(verdict, as_json)
    if as_json:
        print(json.dumps([asdict(finding) for finding in verdict.findings], indent=1, ensure_ascii=False))
    elif verdict.runs:
        print(verdict.closing)
    return verdict.code


def _print(verdict: Verdict, as_json: bool) -> None:
    """Print findings, but for those that the closing line names, or that are printed as JSON."""
    for finding in verdict.findings:
        if as_json or (verdict.runs and finding.severity is Severity.NOTE):
            continue
        label = f"{finding.severity.value:8}" if verdict.runs else "could not check: "
        place = f" [{finding.where}]" if finding.where else ""
        fix = f"\n        -> {finding.fix}" if finding.fix else ""
        print(f"{label}{finding.what}{place}{fix}")
