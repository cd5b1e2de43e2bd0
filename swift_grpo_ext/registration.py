"""The parts of the package, and the one function that hooks them into the host."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module

from swift_grpo_ext import versions
from swift_grpo_ext.errors import EnvironmentMismatchError, UnknownPartError
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.version import __version__


@dataclass(frozen=True)
class Part:
    """One thing that can be turned on and off.

    Attributes:
        module: Dotted path of the room that has a ``register() -> list[str]``: it hooks the part into the
            host and returns the names that it registered.
        needs: Packages that must be installed, in range and fitting.
    """

    module: str
    needs: tuple[str, ...] = (versions.HOST,)


# In the order in which they are applied: defects of the stack first, then what builds on it.
PARTS: dict[str, Part] = {
    "compat": Part("swift_grpo_ext.compat"),
    "templates": Part(
        "swift_grpo_ext.models",
        (versions.HOST, "torch", "torchvision", "transformers", "qwen-vl-utils"),
    ),
    "trainer": Part("swift_grpo_ext.trainer", (versions.HOST, "torch", "transformers", "trl", "msgspec")),
    "rewards": Part("swift_grpo_ext.rewards"),
    "presets": Part("swift_grpo_ext.deepspeed"),
    "callbacks": Part("swift_grpo_ext.watch"),
}

_registered: dict[str, list[str]] = {}


def check_part_names(names: Iterable[str]) -> None:
    """Raise for the first name that is no part.

    Raises:
        UnknownPartError: Gives the nearest name and all of them.
    """
    for name in names:
        if name not in PARTS:
            nearest = difflib.get_close_matches(name, PARTS, n=1, cutoff=0.0)[0]
            raise UnknownPartError(
                f"unknown part {name!r}, did you mean {nearest!r}?", fix=f"parts: {', '.join(PARTS)}"
            )


def register(parts: Iterable[str] | None = None) -> dict[str, list[str]]:
    """Hook parts of the package into ms-swift and print one line of what was done.

    Calling it again registers only what is not registered yet, so the host may replay the plugin file in
    dataloader workers and rollout processes.

    Args:
        parts: Names from `PARTS`; all of them when None. Those in ``SWIFT_GRPO_EXT_DISABLE`` are left out.

    Returns:
        For each part that is on in this process, the names that it registered.

    Raises:
        UnknownPartError: A name that is no part.
        EnvironmentMismatchError: A part does not fit the installed packages. The parts that do fit are
            registered before it is raised; the message names each refused part and why.
    """
    settings = current_settings()
    wanted = list(PARTS if parts is None else parts)
    check_part_names([*wanted, *settings.disable])
    refused: dict[str, EnvironmentMismatchError] = {}
    news = False
    for name in PARTS:
        if name not in wanted or name in settings.disable or name in _registered:
            continue
        try:
            versions.require(*PARTS[name].needs)
        except EnvironmentMismatchError as error:
            refused[name] = error
            continue
        _registered[name] = import_module(PARTS[name].module).register()
        news = True
    if news and not settings.quiet and _speaks_for_the_run():
        print(summary(settings.disable), file=sys.stderr, flush=True)
    if news and settings.preflight:
        import_module("swift_grpo_ext.doctor.check.preflight").preflight()
    if refused:
        raise _refusal(refused)
    return dict(_registered)


def summary(disabled: Iterable[str] = ()) -> str:
    """One line: the package's and the host's version, and each part with the names that it registered."""
    host = f"{versions.HOST} {versions.installed_version(versions.HOST)}"
    done = " | ".join(f"{part}: {', '.join(names) or '-'}" for part, names in _registered.items())
    off = f" | off: {', '.join(disabled)}" if disabled else ""
    return f"swift-grpo-ext {__version__} on {host} | {done}{off}"


def _speaks_for_the_run() -> bool:
    """True in the first rank's own process, not in its dataloader workers or engine processes."""
    from multiprocessing import parent_process

    return parent_process() is None and os.environ.get("RANK", "0") == "0"


def _refusal(refused: dict[str, EnvironmentMismatchError]) -> EnvironmentMismatchError:
    reasons = {error.what: error for error in refused.values()}
    first = next(iter(refused.values()))
    return EnvironmentMismatchError(
        f"refused parts {', '.join(refused)}: {'; '.join(reasons)}",
        fix=f"{first.fix}, or leave the parts out with SWIFT_GRPO_EXT_DISABLE={','.join(refused)}",
    )
