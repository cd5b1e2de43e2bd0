"""The table that every rule of preflight stands in: what users read of a rule is in ``rules.yaml``."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem, WrittenRules


def anywhere(run: Run) -> bool:
    """Every training, of ``swift`` and of ``megatron``."""
    return True


def swift(run: Run) -> bool:
    """Every training of ``swift``."""
    return not run.megatron


def grpo(run: Run) -> bool:
    """GRPO of ``swift``."""
    return not run.megatron and run.grpo


def grpo_anywhere(run: Run) -> bool:
    """GRPO of ``swift`` and of ``megatron``."""
    return run.grpo


def deepspeed(run: Run) -> bool:
    """Where a configuration of DeepSpeed is read."""
    return not run.megatron and isinstance(run.deepspeed, dict)


class CheckRules(WrittenRules[Run]):
    """The rules whose texts stand in the file."""

    def scope_of(self, row: dict[str, Any]) -> Callable[[Run], bool]:
        """Which launches a row holds for."""
        if row.get("for") == "deepspeed":
            return deepspeed
        if row.get("megatron"):
            return grpo_anywhere if row.get("for") == "grpo" else anywhere
        return grpo if row.get("for") == "grpo" else swift


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
