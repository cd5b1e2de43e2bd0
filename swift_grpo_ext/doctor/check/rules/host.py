"""What is installed and registered, and what ms-swift's own checks of its arguments refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from swift_grpo_ext.doctor.check import host_table
from swift_grpo_ext.doctor.check.rules import host_checks
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import NEAR, SwiftGrpoExtError, nearest
from swift_grpo_ext.findings import Finding, Problem, Rule, Severity
from swift_grpo_ext.models.families import FAMILIES
from swift_grpo_ext.parts import check_disabled
from swift_grpo_ext.settings import PREFIX

_OURS = {
    "template": [family.host_template for family in FAMILIES.values()],
    "model_type": [family.host_model_type for family in FAMILIES.values()],
    "callbacks": ["ext_watch"],
}
# Tables that no plugin of ms-swift adds to.
_FIXED = frozenset({"lr_scheduler_type", "eval_strategy", "report_to"})


@table.on("unknown-name")
def _unknown(run: Run) -> Iterator[Problem]:
    for argument in filter(run.arguments.known, table.texts["unknown-name"]["arguments"]):
        if argument not in _FIXED and run.has_plugins_of_the_user:
            continue  # they may register any name
        value = run.arguments.get(argument)
        known = {*host_table.names(argument), *_OURS.get(argument, ())}
        for name in value if isinstance(value, list) else [value] if value else []:
            # A name with a slash is that of an attention kernel on a hub.
            if name not in known and "/" not in str(name):
                close = nearest(name, known, NEAR)
                fix = f"--{argument} {close}" if close else "leave it out"
                yield Problem(f"ms-swift knows no {argument} called {name}", f"--{argument}", fix)


@table.on("extension-setting")
def _settings(run: Run) -> Iterator[Problem]:
    try:
        check_disabled(run.settings.disable)
    except SwiftGrpoExtError as error:
        yield Problem(error.what, error.where or PREFIX + "DISABLE", error.fix)


@table.on("torchvision-of-another-torch")
def _torchvision(run: Run) -> Iterator[Problem]:
    torch, vision = run.versions.get("torch"), run.versions.get("torchvision")
    if not torch or not vision:
        return
    wanted = int(vision.split(".")[1]) - 15
    major, minor = torch.split(".")[:2]
    if major == "2" and vision.startswith("0.") and int(minor) != wanted:
        what = f"torchvision {vision} is built for torch 2.{wanted}, torch is {torch}"
        yield Problem(what, "torchvision", f'pip install "torchvision==0.{int(minor) + 15}.*"')


def findings(run: Run, found: Sequence[Finding]) -> list[Finding]:
    """What ms-swift refuses and no rule has found, with its message."""
    seen = {finding.rule for finding in found}
    refused = []
    for message in host_checks.messages(run.arguments):
        rule = row_of(message)
        if rule is not None and rule.id in seen:
            continue
        known = rule is not None and rule.id != "host-refuses"
        name, fix = (rule.id, rule.cause) if rule and known else ("host-refuses", "as the message says")
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
