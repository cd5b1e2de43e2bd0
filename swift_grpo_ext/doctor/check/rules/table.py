"""The table of rules, the scopes of rules, and helpers."""

from collections.abc import Callable, Iterator
from typing import Any

from swift_grpo_ext.compat.refusals import REFUSALS, RefusableRun
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.facts import model
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.findings import ERROR, Problem, RuleTable, Severity


def anywhere(run: Run) -> bool:
    """Scope: any training, with ``swift`` or ``megatron``."""
    return True


def swift(run: Run) -> bool:
    """Scope: any training with ``swift``; the default of a rule."""
    return not run.megatron


def grpo(run: Run) -> bool:
    """Scope: GRPO with ``swift``."""
    return not run.megatron and run.grpo


def grpo_anywhere(run: Run) -> bool:
    """Scope: GRPO with ``swift`` or ``megatron``."""
    return run.grpo


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
    """Add a rule for a single fault with a fixed text.

    Args:
        id: As in `RuleTable.rule`, which takes ``more``, too.
        severity: As there.
        found: True if a run has the fault, or the values for the braces in the texts; a single value needs no
            tuple if it is never falsy.
        what: The fault; with ``where`` it is and its ``fix``, as in `Problem`.
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


def refused(id: str, defect: str, symptoms: tuple[str, ...] | str, cause: str = "") -> None:
    """Add a rule for runs that the trainer refuses (`compat.refusals`)."""

    def look(run: Run) -> Iterator[Problem]:
        arguments = run.arguments
        values = {name: arguments.get(name) for name in arguments.values}
        losses = values.get("loss_type")
        values["loss_type"] = losses[0] if isinstance(losses, list) else losses
        healed = {DEFECTS[defect].patch} if run.is_patched(defect) else ()
        seen = RefusableRun(values, model.zero(run), run.ranks, frozenset(healed), run.versions)
        if problem := REFUSALS[defect](seen):
            yield problem

    rule(id, ERROR, symptoms=symptoms, cause=cause, defect=DEFECTS[defect])(look)


OUR_PLUGIN = '--external_plugins "$(swift-grpo-ext path)"'


def option(name: str, what: str, value: str | float) -> Problem:
    """A problem of an option, with the value to set."""
    return Problem(what, f"--{name}", f"--{name} {value}")


def variable(name: str, what: str, value: str | float) -> Problem:
    """A problem of an environment variable, with the value to set."""
    return Problem(what, name, f"export {name}={value}")
