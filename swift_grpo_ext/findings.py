"""What is wrong, and the rules that find it: one form for preflight, lint, refusals and monitors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from swift_grpo_ext.defects import Defect

Subject = TypeVar("Subject")


class Severity(str, Enum):
    """How bad a finding is; the members are in order, worst first."""

    ERROR = "error"  # the run will crash, hang, or learn nothing; of a monitor: it learns nothing as it is
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
        steps: For how many steps in a row a running training has shown it.
    """

    what: str
    where: str = ""
    fix: str = ""
    steps: int = 0


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
        steps: For how many steps in a row a running training has shown it.
    """

    rule: str
    severity: Severity
    what: str
    where: str = ""
    fix: str = ""
    reports: tuple[str, ...] = ()
    steps: int = 0

    @property
    def link(self) -> str:
        """The first report that is a link; empty if there is none."""
        return next((report for report in self.reports if report.startswith("https://")), "")


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """One thing that a check looks at.

    Attributes:
        id: Short name, stable: scripts and tests refer to it.
        severity: Of everything that it finds.
        look: Yields the problems that it sees; pure.
        symptoms: What the user would see without the check: exact error texts, or the behaviour in words.
        cause: Why that happens, in a sentence or two.
        reports: Defect ids of this package and links to upstream reports.
    """

    id: str
    severity: Severity
    look: Callable[[Subject], Iterable[Problem]]
    symptoms: tuple[str, ...] = ()
    cause: str = ""
    reports: tuple[str, ...] = ()

    def findings(self, subject: Subject) -> Iterator[Finding]:
        """What the rule finds in a subject."""
        for problem in self.look(subject):
            yield Finding(self.id, self.severity, **vars(problem), reports=self.reports)


class RuleTable(Generic[Subject]):
    """The rules of one subject, in the order in which they were written."""

    def __init__(self) -> None:
        self.rules: list[Rule[Subject]] = []

    def rule(
        self,
        id: str,
        severity: Severity,
        *,
        symptoms: tuple[str, ...] | str = (),
        cause: str = "",
        reports: tuple[str, ...] | str = (),
        defect: Defect | None = None,
    ) -> Callable[
        [Callable[[Subject], Iterable[Problem]]],
        Callable[[Subject], Iterable[Problem]],
    ]:
        """Decorator: put a function into the table under an id.

        Args:
            id: Of the rule.
            severity: Of everything that it finds.
            symptoms: As in `Rule`.
            cause: As in `Rule`; by default what the defect does.
            reports: As in `Rule`; those of the defect come first.
            defect: The known defect that the rule looks for.
        """
        known = (defect.id, *defect.reports) if defect else ()
        cause = cause or (defect.what if defect else "")

        def add(look: Callable[[Subject], Iterable[Problem]]) -> Callable[[Subject], Iterable[Problem]]:
            found = tuple(dict.fromkeys((*known, *_tuple(reports))))
            self.rules.append(Rule(id, severity, look, _tuple(symptoms), cause, found))
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
