"""Findings, and the rules that make them: one form for preflight and check."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from swift_grpo_ext.defects import Defect


class Severity(StrEnum):
    """How bad a finding is; the members are in order, worst first."""

    ERROR = (
        "error"  # the run will crash, hang, or learn nothing; of a monitor: the run learns nothing as it is
    )
    WARNING = "warning"  # it will run, and probably not do what was meant
    NOTE = "note"  # worth knowing, or could not be checked

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


ERROR = Severity.ERROR
WARNING = Severity.WARNING
NOTE = Severity.NOTE


@dataclass(frozen=True)
class Problem:
    """One fault as a rule saw it."""

    what: str  # the fault in one clause, with its figures
    where: str = ""  # the argument, variable, row or file it was found in
    fix: str = ""  # what the user changes
    severity: Severity | None = None  # overrides the rule's severity for this case


@dataclass(frozen=True)
class Finding:
    """One problem, as in `Problem`, with the rule that found it."""

    rule: str  # its id
    severity: Severity
    what: str
    where: str = ""
    fix: str = ""
    reports: tuple[str, ...] = ()  # defect ids of this package and links to upstream reports
    not_checked: str = ""  # what could not be checked, in a few words; empty for a fault


class NotKnownError(Exception):
    """A rule asked for a value that cannot be known here, so it says nothing more.

    Only `RuleTable.judged` catches it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name  # the value, as the user wrote it


Subject = TypeVar("Subject")
Look = Callable[[Subject], Iterable[Problem]]


def everything(_subject: object) -> bool:
    """The scope of a rule that holds for every subject."""
    return True


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """One check."""

    id: str  # short and stable: scripts and tests refer to it
    severity: Severity  # of its findings, unless a problem overrides it
    look: Look[Subject]  # yields the problems that it sees; pure
    symptoms: tuple[str, ...] = ()  # without the check: exact error texts, or the behaviour in words
    cause: str = ""  # why that happens, in a sentence or two
    reports: tuple[str, ...] = ()  # defect ids of this package and links to upstream reports
    scope: Callable[[Subject], bool] = everything  # which subjects it holds for

    def findings(self, subject: Subject) -> Iterator[Finding]:
        """The findings of the rule in a subject; none outside its scope."""
        if not self.scope(subject):
            return
        for problem in self.look(subject):
            yield Finding(
                self.id,
                problem.severity or self.severity,
                problem.what,
                problem.where,
                problem.fix,
                self.reports,
            )


class RuleTable(Generic[Subject]):
    """The rules of one subject, in the order in which they were written."""

    def __init__(self, scope: Callable[[Subject], bool] = everything) -> None:
        self.rules: list[Rule[Subject]] = []
        self.scope = scope  # default of rules that name none

    def rule(
        self,
        id: str,
        severity: Severity,
        *,
        symptoms: tuple[str, ...] | str = (),
        cause: str = "",
        reports: tuple[str, ...] | str = (),
        defect: Defect | None = None,
        scope: Callable[[Subject], bool] | None = None,
    ) -> Callable[[Look[Subject]], Look[Subject]]:
        """Decorator: put a function into the table as a `Rule`, with cause and reports of its defect."""
        of_defect = (defect.id, *defect.reports) if defect else ()
        cause = cause or (defect.what if defect else "")

        def add(look: Look[Subject]) -> Look[Subject]:
            links = tuple(dict.fromkeys((*of_defect, *_tuple(reports))))
            self.rules.append(
                Rule(
                    id,
                    severity,
                    look,
                    _tuple(symptoms),
                    cause,
                    links,
                    scope or self.scope,
                )
            )
            return look

        return add

    def judged(self, subject: Subject) -> list[Finding]:
        """Everything that the rules find, and a note for each value not known here and each rule that raised.

        Findings that a rule made before it met such a value are kept.
        """
        findings: list[Finding] = []
        not_known: set[str] = set()
        for rule in self.rules:
            try:
                findings.extend(rule.findings(subject))
            except NotKnownError as missing:
                not_known.add(missing.name)
            except Exception as error:  # one rule with a fault must not hide what the others find
                findings.append(_failed(rule.id, error))
        findings += [not_known_here(name) for name in sorted(not_known)]
        return worst_first(findings)


def not_known_here(name: str, where: str = "", fix: str = "") -> Finding:
    """The note that a value cannot be known here, so nothing that depends on it was judged."""
    return Finding("not-known-here", NOTE, name, where, fix, not_checked=name)


def _failed(rule: str, error: Exception) -> Finding:
    what = f"the rule {rule} could not be checked: {type(error).__name__}: {error}"
    return Finding("rule-failed", NOTE, what, fix="report it", not_checked=f"the rule {rule}")


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by severity; within one severity in the order in which they came."""
    return sorted(findings, key=lambda finding: finding.severity.rank)


def exit_code(findings: Iterable[Finding]) -> int:
    """0: nothing to fix, 1: warnings, 2: the run will fail."""
    return max((NOTE.rank - finding.severity.rank for finding in findings), default=0)


def _tuple(value: Iterable[str] | str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
