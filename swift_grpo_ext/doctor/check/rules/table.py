"""The table that every rule of preflight stands in: what users read of a rule is in ``rules.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from swift_grpo_ext.doctor.check.arguments import NotKnown
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Finding, Problem, RuleTable, Severity

Look = Callable[[Run], Iterable[Problem]]
_TEXTS = Path(__file__).with_name("rules.yaml")


@cache
def texts() -> dict[str, dict[str, Any]]:
    """Severity, symptoms, cause, reports and kinds of training of each rule by its id."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, dict[str, Any]] = yaml.load(_TEXTS.read_text(encoding="utf-8"), loader)
    return found


class CheckRules(RuleTable[Run]):
    """The rules, and for which training each holds.

    A rule asks the run for what it needs. Where the launch takes a value from somewhere else, asking raises
    `NotKnown`, and the rule says nothing more: what is not known is not judged.
    """

    def on(self, id: str) -> Callable[[Look], Look]:
        """Decorator: put a function into the table under an id of ``rules.yaml``."""
        row = texts()[id]
        return self.rule(
            id,
            Severity(row["severity"]),
            symptoms=_tuple(row["symptoms"]),
            cause=row["cause"],
            reports=_tuple(row.get("reports", ())),
        )

    def add_simple(self) -> None:
        """Those whose condition stands in ``rules.yaml``: any of several sets of values."""
        for id, row in texts().items():
            if "when" in row:
                self.on(id)(partial(_simple, row))

    def judged(self, run: Run) -> tuple[list[Finding], set[str]]:
        """What the rules find, and what they could not look at."""
        found: list[Finding] = []
        not_known: set[str] = set()
        for rule in self.rules:
            row = texts()[rule.id]
            if (row.get("for") == "grpo" and not run.grpo) or (run.megatron and not row.get("megatron")):
                continue
            try:
                found.extend(rule.findings(run))  # keeps what came before a value that is not known
            except NotKnown as missing:
                not_known.add(missing.name)
        return found, not_known


def _simple(row: dict[str, Any], run: Run) -> Iterator[Problem]:
    values = {name: run.arguments.get(name) for name in row.get("shows", ())}
    for conditions in row["when"]:
        if all(_holds(run.arguments.get(name), wanted) for name, wanted in conditions.items()):
            yield Problem(row["what"].format(**values), row["where"], row["fix"])
            return


def _holds(value: object, wanted: object) -> bool:
    """``true`` and ``false``: set or not; ``not``: none of these; else equal."""
    if isinstance(wanted, dict):
        return value not in wanted["not"]
    return bool(value) is wanted if isinstance(wanted, bool) else value == wanted


table = CheckRules()


def nearest_of(valid: Iterable[int], asked: int) -> int:
    """The number that is closest to what was asked for, the larger of two."""
    return min(valid, key=lambda number: (abs(number - asked), -number), default=asked)


def _tuple(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
