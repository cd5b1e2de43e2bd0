"""All patches, and the outcome of each in this process."""

import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from wrapt import register_post_import_hook

from swift_grpo_ext.compat.patch import Patch, State, Target, signature_of
from swift_grpo_ext.defects import PATCHED
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.settings import current_settings


@dataclass
class PatchOutcome:
    """Outcome of one patch, with its reason."""

    patch: Patch
    state: State
    reason: str = ""
    target: Target | None = None


_ACTIVE = (State.APPLIED, State.WAITING)
_outcomes: dict[str, PatchOutcome] = {}


@cache
def patches() -> dict[str, Patch]:
    """All patches by id: those that `patch` made in this folder's files, which import nothing heavy."""
    names = (module.name for module in iter_modules([str(Path(__file__).parent)]))
    modules = (import_module(f"swift_grpo_ext.compat.{name}") for name in names)
    defined = (value for module in modules for value in vars(module).values() if isinstance(value, Patch))
    return {patch.id: patch for patch in defined}


def apply_all() -> list[str]:
    """Apply every patch that this environment needs, some once their target is imported; their ids."""
    settings = current_settings()
    for patch in patches().values():
        if patch.id not in _outcomes:
            names = (f"compat.{patch.id}", f"compat.{patch.defect.id}")
            settle(patch, disabled=settings.disables(*names))
    return list(healed())


def settle(patch: Patch, *, disabled: bool = False) -> None:
    """Apply, postpone or skip one patch, and record the outcome."""
    if disabled:
        _keep(PatchOutcome(patch, State.DISABLED, "by SWIFT_GRPO_EXT_DISABLE"))
    elif reason := patch.defect.absent_because():
        _keep(PatchOutcome(patch, State.NOT_NEEDED, reason))
    elif patch.waits_for in sys.modules:
        _keep(apply(patch))
    else:
        _keep(PatchOutcome(patch, State.WAITING, f"for the import of {patch.waits_for}"))
        register_post_import_hook(lambda _: _keep(apply(patch)), patch.waits_for)


def apply(patch: Patch) -> PatchOutcome:
    """Apply one patch if its target is as it was written for and its probe shows the defect."""
    target = Target(patch.target)
    try:
        original = target.get()
        signature = signature_of(original)
        if signature != patch.fingerprint:
            drift = f"DRIFT: {patch.target} now takes ({signature}), the patch knows ({patch.fingerprint})"
            return PatchOutcome(patch, State.REFUSED, drift)
        if not patch.probe():
            return PatchOutcome(patch, State.NOT_NEEDED, "the probe finds no defect here")
    except (ImportError, AttributeError, TypeError, OSError) as error:  # OSError: no source to look into
        return PatchOutcome(patch, State.REFUSED, f"DRIFT: {type(error).__name__}: {error}")
    target.replace(patch.fix(original))
    return PatchOutcome(patch, State.APPLIED, patch.defect.what, target)


def import_what_is_awaited() -> None:
    """Import the modules that patches wait for, if installed, so that each patch has its final state."""
    for outcome in outcomes():
        if outcome.state is State.WAITING:
            with suppress(ModuleNotFoundError):
                import_module(outcome.patch.waits_for)


def outcomes() -> list[PatchOutcome]:
    """Outcomes of all patches so far."""
    return list(_outcomes.values())


def healed() -> frozenset[str]:
    """Ids of the patches that are in place, or will be when their target is imported."""
    return frozenset(outcome.patch.id for outcome in outcomes() if outcome.state in _ACTIVE)


def _keep(outcome: PatchOutcome) -> None:
    """Record an outcome, and warn if the defect stays."""
    patch = outcome.patch
    _outcomes[patch.id] = outcome
    if outcome.state is State.APPLIED:
        PATCHED.add(patch.id)
    if outcome.state is State.REFUSED:
        what = f"patch {patch.id} does not apply, so the defect stays: {patch.defect.what}"
        fix = f"upgrade swift-grpo-ext, or see {patch.defect.reports[0]}"
        refusal = RefusedError(what, where=outcome.reason, fix=fix)
        warnings.warn(str(refusal), RuntimeWarning, stacklevel=2)
