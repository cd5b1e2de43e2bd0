"""What a check found, and the rules that find it: the common form of preflight and the DeepSpeed lint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

Subject = TypeVar("Subject")


class Severity(str, Enum):
    """How bad a finding is; the members are in order, worst first."""

    ERROR = "error"  # the run will crash, hang, or learn nothing
    WARNING = "warning"  # it will run, and probably not do what was meant
    NOTE = "note"  # worth knowing, or could not be checked

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True)
class Problem:
    """What a rule saw.

    Attributes:
        what: The fault in one clause, with its figures.
        where: The argument, variable, row or file it was found in.
        fix: What the user changes.
    """

    what: str
    where: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Finding:
    """One problem, with the rule that found it.

    Attributes:
        rule: Id of the rule.
        severity: How bad it is.
        what: The fault in one clause.
        where: The argument, variable, row or file it was found in.
        fix: What the user changes.
        reports: Defect ids of this package and links to upstream reports.
    """

    rule: str
    severity: Severity
    what: str
    where: str = ""
    fix: str = ""
    reports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """One thing that a check looks at.

    Attributes:
        id: Short name, stable: scripts and tests refer to it.
        severity: Of everything that it finds.
        symptoms: What the user would see without the check: exact error texts, or the behaviour in words.
        cause: Why that happens, in a sentence or two.
        reports: Defect ids of this package and links to upstream reports.
        look: Yields the problems that it sees; pure.
    """

    id: str
    severity: Severity
    symptoms: tuple[str, ...]
    cause: str
    reports: tuple[str, ...]
    look: Callable[[Subject], Iterable[Problem]]

    def findings(self, subject: Subject) -> Iterator[Finding]:
        """What the rule finds in a subject."""
        for problem in self.look(subject):
            yield Finding(
                self.id, self.severity, problem.what, problem.where, problem.fix, reports=self.reports
            )


class RuleTable(Generic[Subject]):
    """The rules of one subject, in the order in which they were written."""

    def __init__(self) -> None:
        self.rules: list[Rule[Subject]] = []

    def rule(
        self,
        id: str,
        severity: Severity,
        *,
        symptoms: tuple[str, ...] | str,
        cause: str,
        reports: tuple[str, ...] | str = (),
    ) -> Callable[
        [Callable[[Subject], Iterable[Problem]]],
        Callable[[Subject], Iterable[Problem]],
    ]:
        """Decorator: put a function into the table under an id."""

        def add(look: Callable[[Subject], Iterable[Problem]]) -> Callable[[Subject], Iterable[Problem]]:
            self.rules.append(Rule(id, severity, _tuple(symptoms), cause, _tuple(reports), look))
            return look

        return add

    def findings(self, subject: Subject) -> list[Finding]:
        """Everything that the rules find, worst first."""
        return worst_first(finding for rule in self.rules for finding in rule.findings(subject))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by severity; within one severity in the order in which they came."""
    return sorted(findings, key=lambda finding: finding.severity.rank)


def exit_code(findings: Iterable[Finding]) -> int:
    """0: nothing to fix, 1: warnings, 2: the run will fail."""
    ranks = [finding.severity.rank for finding in findings]
    return max((Severity.NOTE.rank - rank for rank in ranks), default=0)


def _tuple(value: tuple[str, ...] | str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
