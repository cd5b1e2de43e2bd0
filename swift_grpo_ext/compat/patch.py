"""Definition of a patch: its metadata, its target, and the decorator that makes one."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Any

from swift_grpo_ext.defects import DEFECTS, Defect

_ABSENT = object()
Fix = Callable[[Callable[..., Any]], Callable[..., Any]]  # takes the original and returns its replacement


class State(StrEnum):
    """Outcome of a patch in this process."""

    APPLIED = "applied"
    WAITING = "waiting"  # its target is not imported yet; it is applied when it is
    NOT_NEEDED = "not needed"
    REFUSED = "refused"
    DISABLED = "disabled"


@dataclass(frozen=True)
class Patch:
    """How a defect of ms-swift or its stack is fixed while it runs."""

    defect: Defect  # the defect that it fixes, with its id, releases and report
    target: str  # what is replaced, as ``package.module:Class.method`` or ``package.module:function``
    # The target's `signature_of` in the releases that the patch was written for; others are left alone.
    fingerprint: str
    probe: Callable[[], bool]  # True if the defect is present; runs once, in milliseconds, without a device
    fix: Fix
    remove_when: str  # the condition under which the patch can be removed
    # Module that must be imported first; by default the target's for ms-swift, else the top-level package.
    after: str = ""

    @property
    def id(self) -> str:
        """The patch's name: that of the defect, sometimes with a suffix."""
        return self.defect.patch

    @property
    def waits_for(self) -> str:
        """Module that must be imported before the patch can be applied."""
        module = self.target.partition(":")[0]
        return self.after or (module if module.startswith("swift.") else module.partition(".")[0])


def patch(
    defect: str,
    target: str,
    *,
    fingerprint: str,
    probe: Callable[[], bool],
    remove_when: str,
    after: str = "",
    wraps: bool = False,
) -> Callable[[Callable[..., Any]], Patch]:
    """Decorator that makes a `Patch` of a function called instead of the target, its first argument.

    With ``wraps`` the decorated function is a `Fix`, called once, when the patch is applied.
    """

    def as_patch(instead: Callable[..., Any]) -> Patch:
        @functools.wraps(instead)
        def fix(original: Callable[..., object]) -> Callable[..., object]:
            @functools.wraps(original)
            def replacement(*args: object, **kwargs: object) -> object:
                return instead(original, *args, **kwargs)

            return replacement

        return Patch(
            DEFECTS[defect], target, fingerprint, probe, instead if wraps else fix, remove_when, after
        )

    return as_patch


def signature_of(function: Callable[..., object]) -> str:
    """Parameters as written, without annotations and values of defaults, which releases change without
    changing what a wrapper sees.
    """
    signature = inspect.signature(function)
    empty = inspect.Parameter.empty
    plain = [
        parameter.replace(annotation=empty, default=parameter.default if parameter.default is empty else ...)
        for parameter in signature.parameters.values()
    ]
    written = str(inspect.Signature(plain)).replace("=Ellipsis", "=")
    return written[1:-1]


@dataclass
class Target:
    """The place that a dotted path names: an attribute of a module or of a class."""

    path: str
    _before: Any = field(default=_ABSENT, repr=False)

    @functools.cached_property
    def owner(self) -> object:
        """Module or class that holds the attribute; raises ImportError or AttributeError if it is missing."""
        module, _, qualified = self.path.partition(":")
        owner: Any = import_module(module)
        for name in qualified.split(".")[:-1]:
            owner = getattr(owner, name)
        return owner

    @property
    def name(self) -> str:
        """Name of the attribute."""
        return self.path.rpartition(":")[2].rpartition(".")[2]

    def get(self) -> Any:
        """The attribute as a caller sees it."""
        return getattr(self.owner, self.name)

    def replace(self, new: object) -> None:
        """Put `new` in place, as a static or class method if the old one was."""
        self._before = vars(self.owner).get(self.name, _ABSENT)
        kind = type(inspect.getattr_static(self.owner, self.name))
        setattr(self.owner, self.name, kind(new) if kind in (staticmethod, classmethod) else new)


def in_source(path: str, *texts: str) -> bool:
    """True if the source of a function, named as a `Patch` names its target, contains all of the texts."""
    source = inspect.getsource(Target(path).get())
    return all(text in source for text in texts)
