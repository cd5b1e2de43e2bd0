"""What ms-swift's own checks of its arguments refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from swift_grpo_ext.doctor.check.rules import host_checks
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Finding, Problem, Rule, Severity


@table.on("host-refuses")
def _none(run: Run) -> Iterator[Problem]:
    """In the table for its row; `findings` runs it after the other rules."""
    return iter(())


def findings(run: Run, found: Sequence[Finding]) -> list[Finding]:
    """What ms-swift refuses and no rule has found, with its message."""
    seen = {finding.rule for finding in found}
    refused = []
    for message in host_checks.messages(run.arguments):
        rule = row_of(message)
        if rule is not None and rule.id in seen:
            continue
        fix = rule.cause if rule is not None and rule.id != "host-refuses" else "as the message says"
        name = rule.id if rule is not None else "host-refuses"
        refused.append(Finding(name, Severity.ERROR, f"ms-swift refuses it: {message}", "", fix))
    return refused


def row_of(message: str) -> Rule[Run] | None:
    """The rule whose symptom a message of ms-swift is."""
    for rule in table.rules:
        for symptom in rule.symptoms:
            pattern = ".*".join(re.escape(part) for part in symptom.split("..."))
            if len(symptom) > 20 and re.search(pattern, message):
                return rule
    return None
