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


class Severity(str, Enum):
    """How bad a finding is; the members are in order, worst first."""

    ERROR = "error"  # the run will crash, hang, or learn nothing; of a monitor: it learns nothing as it is
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
    """What a rule saw."""

    what: str  # the fault in one clause, with its figures
    where: str = ""  # the argument, variable, row or file it was found in
    fix: str = ""  # what the user changes
    steps: int = 0  # for how many steps in a row a running training has shown it
    severity: Severity | None = None  # where this case is better or worse than the rule says


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
    unseen_images: bool = False  # a guess about images, which rows with images take back
    not_checked: str = ""  # what could not be looked at, in a few words; empty for a fault

    @property
    def link(self) -> str:
        """The first report that is a link; empty if there is none."""
        return next((report for report in self.reports if report.startswith("https://")), "")


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
    """One thing that is looked at."""

    id: str  # short and stable: scripts and tests refer to it
    severity: Severity  # of what it finds, unless a problem says another
    look: Look[Subject]  # yields the problems that it sees; pure
    symptoms: tuple[str, ...] = ()  # without the check: exact error texts, or the behaviour in words
    cause: str = ""  # why that happens, in a sentence or two
    reports: tuple[str, ...] = ()  # defect ids of this package and links to upstream reports
    scope: Callable[[Subject], bool] = everything  # which subjects it holds for
    unseen_images: bool = False  # it guesses how images are: taken back once rows are read
    not_checked: str = ""  # of a note that something could not be looked at: what, in a few words

    def findings(self, subject: Subject) -> Iterator[Finding]:
        """What the rule finds in a subject; nothing outside its scope."""
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
                problem.steps,
                self.unseen_images,
                self.not_checked,
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
        symptoms: tuple[str, ...] | str = (),
        cause: str = "",
        reports: tuple[str, ...] | str = (),
        defect: Defect | None = None,
        scope: Callable[[Subject], bool] = everything,
        unseen_images: bool = False,
        not_checked: str = "",
    ) -> Callable[[Look[Subject]], Look[Subject]]:
        """Decorator: put a function into the table as a `Rule`, with cause and reports of its defect."""
        of_defect = (defect.id, *defect.reports) if defect else ()
        cause = cause or (defect.what if defect else "")

        def add(look: Look[Subject]) -> Look[Subject]:
            links = tuple(dict.fromkeys((*of_defect, *_tuple(reports))))
            self.rules.append(
                Rule(id, severity, look, _tuple(symptoms), cause, links, scope, unseen_images, not_checked)
            )
            return look

        return add

    def findings(self, subject: Subject) -> list[Finding]:
        """Everything that the rules find, worst first."""
        return worst_first(finding for rule in self.rules for finding in rule.findings(subject))

    def judged(self, subject: Subject) -> list[Finding]:
        """As `findings`, with a note for each value that is not known here and each rule that raised.

        What a rule found before it met such a value stays.
        """
        found: list[Finding] = []
        not_known: set[str] = set()
        for rule in self.rules:
            try:
                found.extend(rule.findings(subject))
            except NotKnownError as missing:
                not_known.add(missing.name)
            except Exception as error:  # one rule with a fault must not hide what the others find
                found.append(_failed(rule.id, error))
        found += [not_known_here(name) for name in sorted(not_known)]
        return worst_first(found)


def not_known_here(name: str, where: str = "", fix: str = "") -> Finding:
    """The note that a value cannot be known here, so nothing that depends on it was judged."""
    return Finding("not-known-here", Severity.NOTE, name, where, fix, not_checked=name)


def _failed(rule: str, error: Exception) -> Finding:
    what = f"the rule {rule} could not be checked: {type(error).__name__}: {error}"
    return Finding("rule-failed", Severity.NOTE, what, fix="report it", not_checked=f"the rule {rule}")


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
        return self.rule(
            id,
            severity,
            symptoms=symptoms,
            cause=row["cause"],
            reports=reports,
            defect=defect,
            scope=self.scope_of(row),
            unseen_images=row.get("unseen_images", False),
            not_checked=row.get("not_checked", ""),
        )

    def scope_of(self, row: dict[str, Any]) -> Callable[[Subject], bool]:
        """Which subjects a row holds for."""
        return everything

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
