"""The one table of rules, the launches that a rule may hold for, and helpers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from swift_grpo_ext.compat import refusals
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.findings import Problem, RuleTable, Severity


def anywhere(run: Run) -> bool:
    """Every training, of ``swift`` and of ``megatron``."""
    return True


def swift(run: Run) -> bool:
    """Every training of ``swift``: the scope of a rule that names none."""
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


def where_no_row_is_seen(run: Run) -> bool:
    """Training of ``swift`` whose images are guessed, for no row of it was sent through the template."""
    return not run.megatron and not (run.grpo and run.data.samples and run.data.tokenizer)


table: RuleTable[Run] = RuleTable(swift)
rule = table.rule


def fault(
    id: str,
    severity: Severity,
    found: Callable[[Run], Any],
    what: str,
    where: str,
    fix: str,
    **more: Any,
) -> None:
    """A row of the table: a rule that finds one fault, and says it in the same words each time.

    Args:
        id: As in `RuleTable.rule`, which takes ``more``, too.
        severity: As there.
        found: Whether a run has the fault, or the values that fill in the braces of the texts; a single value
            alone where it is never false.
        what: The fault, ``where`` it stands, and its ``fix``, as in `Problem`.
        where: See there.
        fix: See there.
        more: Symptoms, cause, reports, defect, scope.
    """

    def look(run: Run) -> Iterator[Problem]:
        values = found(run)
        if values:
            filled = values if isinstance(values, tuple) else (values,)
            yield Problem(what.format(*filled), where.format(*filled), fix.format(*filled))

    rule(id, severity, **more)(look)


def in_file(run: Run, key: str) -> Any:
    """The value at a dotted key of the DeepSpeed configuration; None where there is none."""
    node: Any = run.deepspeed
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return node


def is_harmed(run: Run, defect: str) -> bool:
    """Whether the run's releases are known to have a defect that nothing fixes."""
    return DEFECTS[defect].harms(run.versions) and not run.is_patched(DEFECTS[defect].patch)


def refused(run: Run, rule: str, **instead: Any) -> Iterator[Problem]:
    """What the trainer will refuse by one of its rules (`compat.refusals`), in the releases of this run.

    ``instead``: values of arguments that the trainer gets otherwise than they are written.
    """
    values = {name: run.arguments.get(name) for name in run.arguments.values} | instead
    device = "cpu" if run.offloads("offload_optimizer") else "none"
    zero = {"stage": run.stage, "offload_optimizer": {"device": device}}
    file = {"zero_optimization": zero} if isinstance(run.deepspeed, dict) else {}
    patch = DEFECTS[rule].patch
    healed = frozenset({patch} if patch and run.is_patched(patch) else ())
    versions = {name: run.versions.get(name) for name in DEFECTS[rule].affected}
    subject = refusals.Run(values, file, run.ranks, healed, versions)
    return iter(next(known for known in refusals.RULES if known.id == rule).look(subject))


def lacks(run: Run) -> Mapping[Any, str]:
    """What the model's family cannot do, each with its reason."""
    return run.family.lacks if run.family else {}


MOST = 10**6
"""A number of completions, rows or processes that nobody means: nothing is counted up to it."""
OUR_PLUGIN = '--external_plugins "$(swift-grpo-ext path)"'


def option(name: str, what: str, value: str | float) -> Problem:
    """An option that is at fault, with the value to give it."""
    return Problem(what, f"--{name}", f"--{name} {value}")


def variable(name: str, what: str, value: str | float) -> Problem:
    """A variable that is at fault, with the value to give it."""
    return Problem(what, name, f"export {name}={value}")


def divisors(number: int, least: int = 1) -> list[int]:
    """What divides a number; nothing of one that nobody means."""
    return [divisor for divisor in range(least, number + 1) if number % divisor == 0] if number < MOST else []


def nearest_of(valid: Iterable[int], wanted: int) -> int:
    """The number that is closest to what was asked for, the larger of two."""
    return min(valid, key=lambda number: (abs(number - wanted), -number), default=wanted)
