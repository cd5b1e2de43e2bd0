"""What is wrong, and the rules that find it: one form for preflight, lint, refusals and monitors."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from packaging.specifiers import SpecifierSet

from swift_grpo_ext.defects import DEFECTS, Defect

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
    """What a rule saw."""

    what: str  # the fault in one clause, with its figures
    where: str = ""  # the argument, variable, row or file it was found in
    fix: str = ""  # what the user changes
    steps: int = 0  # for how many steps in a row a running training has shown it


@dataclass(frozen=True)
class Finding:
    """One problem, as in `Problem`, with the rule that found it."""

    rule: str  # its id
    severity: Severity
    what: str
    where: str = ""
    fix: str = ""
    reports: tuple[str, ...] = ()  # defect ids of this package and links to upstream reports
    steps: int = 0

    @property
    def link(self) -> str:
        """The first report that is a link; empty if there is none."""
        return next((report for report in self.reports if report.startswith("https://")), "")


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """One thing that a check looks at."""

    id: str  # short and stable: scripts and tests refer to it
    severity: Severity  # of everything that it finds
    look: Callable[[Subject], Iterable[Problem]]  # yields the problems that it sees; pure
    symptoms: tuple[str, ...] = ()  # without the check: exact error texts, or the behaviour in words
    cause: str = ""  # why that happens, in a sentence or two
    reports: tuple[str, ...] = ()  # defect ids of this package and links to upstream reports

    def findings(self, subject: Subject) -> Iterator[Finding]:
        """What the rule finds in a subject."""
        for problem in self.look(subject):
            yield Finding(self.id, self.severity, **vars(problem), reports=self.reports)


Look = Callable[[Subject], Iterable[Problem]]


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
    ) -> Callable[[Look[Subject]], Look[Subject]]:
        """Decorator: put a function into the table as a `Rule`, with cause and reports of its defect."""
        known = (defect.id, *defect.reports) if defect else ()
        cause = cause or (defect.what if defect else "")

        def add(look: Look[Subject]) -> Look[Subject]:
            found = tuple(dict.fromkeys((*known, *_tuple(reports))))
            self.rules.append(Rule(id, severity, look, _tuple(symptoms), cause, found))
            return look

        return add

    def findings(self, subject: Subject) -> list[Finding]:
        """Everything that the rules find, worst first."""
        return worst_first(finding for rule in self.rules for finding in rule.findings(subject))


class WrittenRules(RuleTable[Subject]):
    """Rules whose texts stand in a YAML file, by id: severity, symptoms, cause, reports, defect.

    A row with ``finds`` is the whole rule. Each entry there has its condition (``if``: values by name, or a
    list of such sets), ``what``, ``where`` and ``fix``; names in braces are filled in.
    """

    def __init__(self, path: Path, value: Callable[[Subject, str], object]) -> None:
        super().__init__()
        self.path, self.value = path, value  # value: what a name in a condition stands for

    @cached_property
    def texts(self) -> dict[str, dict[str, Any]]:
        """The rows of the file."""
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        found: dict[str, dict[str, Any]] = yaml.load(self.path.read_text(encoding="utf-8"), loader)
        return found

    def on(self, id: str) -> Callable[[Look[Subject]], Look[Subject]]:
        """Decorator: put a function into the table under an id of the file."""
        row = self.texts[id]
        symptoms, reports = (_tuple(row.get(name, ())) for name in ("symptoms", "reports"))
        defect = DEFECTS[row["defect"]] if "defect" in row else None
        severity = Severity(row["severity"])
        return self.rule(id, severity, symptoms=symptoms, cause=row["cause"], reports=reports, defect=defect)

    def add_written(self) -> None:
        """Put those that are whole in the file into the table, and all into the order of the file."""
        for id, row in self.texts.items():
            if "finds" in row:
                self.on(id)(partial(self._found, row["finds"]))
        order = list(self.texts)
        self.rules.sort(key=lambda rule: order.index(rule.id))

    def _found(self, entries: list[dict[str, Any]], subject: Subject) -> Iterator[Problem]:
        names = _Names(lambda name: self.value(subject, name))
        for entry in entries:
            sets = entry["if"] if isinstance(entry["if"], list) else [entry["if"]]
            if any(all(_holds(names[name], wanted) for name, wanted in one.items()) for one in sets):
                texts = [str(entry.get(part, "")).format_map(names) for part in ("what", "where", "fix")]
                yield Problem(texts[0], texts[1], texts[2])


class _Names(dict[str, object]):
    def __init__(self, value: Callable[[str], object]) -> None:
        super().__init__()
        self.value = value

    def __missing__(self, name: str) -> object:
        return self.value(name)


_CONDITIONS: dict[str, Callable[[Any, Any], bool]] = {
    "not": lambda value, wanted: value not in wanted,
    "in": lambda value, wanted: value in wanted,
    "has": lambda value, wanted: wanted in (value or ()),
    "above": lambda value, wanted: (value or 0) > wanted,
    "below": lambda value, wanted: (value or 0) < wanted,
    "at_most": lambda value, wanted: (value or 0) <= wanted,
    "matches": lambda value, wanted: re.search(wanted, str(value or "")) is not None,
    "releases": lambda value, wanted: (
        value is not None and SpecifierSet(wanted).contains(value, prereleases=True)
    ),
}


def _holds(value: object, wanted: object) -> bool:
    """``true`` and ``false``: set or not; a table: each of `_CONDITIONS`; else equal."""
    if isinstance(wanted, dict):
        return all(_CONDITIONS[how](value, one) for how, one in wanted.items())
    return bool(value) is wanted if isinstance(wanted, bool) else value == wanted


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by severity; within one severity in the order in which they came."""
    return sorted(findings, key=lambda finding: finding.severity.rank)


def exit_code(findings: Iterable[Finding]) -> int:
    """0: nothing to fix, 1: warnings, 2: the run will fail."""
    ranks = [finding.severity.rank for finding in findings]
    return max((Severity.NOTE.rank - rank for rank in ranks), default=0)


def _tuple(value: Iterable[str] | str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
