"""The table that every rule of preflight stands in: what users read of a rule is in ``rules.yaml``."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.arguments import NotKnown
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Finding, Problem, WrittenRules


class CheckRules(WrittenRules[Run]):
    """The rules, and for which training each holds.

    A rule asks the run for what it needs. Where the launch takes a value from somewhere else, asking raises
    `NotKnown`, and the rule says nothing more: what is not known is not judged.
    """

    def judged(self, run: Run) -> tuple[list[Finding], set[str]]:
        """What the rules find, and what they could not look at."""
        found: list[Finding] = []
        not_known: set[str] = set()
        for rule in self.rules:
            try:
                if self._is_for(run, self.texts[rule.id]):
                    found.extend(rule.findings(run))  # keeps what came before a value that is not known
            except NotKnown as missing:
                not_known.add(missing.name)
        return found, not_known

    def _is_for(self, run: Run, row: dict[str, Any]) -> bool:
        if run.megatron and not row.get("megatron"):
            return False
        of_deepspeed = row.get("for") != "deepspeed" or isinstance(run.deepspeed, dict)
        return of_deepspeed and (row.get("for") != "grpo" or run.grpo)


def in_file(run: Run, key: str) -> Any:
    """The value at a dotted key of the DeepSpeed configuration; None where there is none."""
    node: Any = run.deepspeed
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _is_harmed(run: Run, defect: str) -> bool:
    """Whether the installed DeepSpeed is known to have a defect that nothing fixes."""
    releases = {"deepspeed": run.versions.get("deepspeed")}
    return DEFECTS[defect].harms(releases) and not run.heals(DEFECTS[defect].patch)


def _lacks(run: Run, name: str) -> object:
    """Why the model's family cannot do something; of all, without a name."""
    lacks: Mapping[Any, str] = run.facts.lacks if run.facts else {}
    return lacks.get(name) if name else lacks


_PLACES = {
    "run": lambda run, name: getattr(run, name) if name else run,
    "release": lambda run, name: run.versions.get(name) if name else run.versions,
    "missing": lambda run, name: name in run.versions and run.versions[name] is None,
    "given": lambda run, name: name in run.arguments.given,
    "heals": Run.heals,
    "lacks": _lacks,
    "part": lambda run, name: name in run.parts,
    "file": in_file,
    "zero": lambda run, key: run.zero.get(key),
    "offloads": Run.offloads,
    "harmed": _is_harmed,
    "fix": lambda run, _: {id: defect.fix for id, defect in DEFECTS.items()},
}


def _value(run: Run, name: str) -> object:
    """What a name of ``rules.yaml`` stands for: an argument, or with a prefix a fact of the run."""
    place, _, rest = name.partition(".")
    return _PLACES[place](run, rest) if place in _PLACES else run.arguments.get(name)


table = CheckRules(Path(__file__).with_name("rules.yaml"), _value)


OUR_PLUGIN = '--external_plugins "$(swift-grpo-ext path)"'


def option(name: str, what: str, value: object) -> Problem:
    """An option that is at fault, with the value to give it."""
    return Problem(what, f"--{name}", f"--{name} {value}")


def variable(name: str, what: str, value: object) -> Problem:
    """A variable that is at fault, with the value to give it."""
    return Problem(what, name, f"export {name}={value}")


def divisors(number: int, least: int = 1) -> list[int]:
    """What divides a number."""
    return [one for one in range(least, number + 1) if number % one == 0]


def nearest_of(valid: Iterable[int], asked: int) -> int:
    """The number that is closest to what was asked for, the larger of two."""
    return min(valid, key=lambda number: (abs(number - asked), -number), default=asked)
