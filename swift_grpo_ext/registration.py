"""The one function that hooks the parts into ms-swift."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from textwrap import shorten
from types import TracebackType
from typing import NoReturn

from swift_grpo_ext import versions
from swift_grpo_ext.errors import EnvironmentMismatchError, SwiftGrpoExtError
from swift_grpo_ext.parts import PARTS, PREFLIGHT, check_disabled, check_part_names
from swift_grpo_ext.plugin_files import check_one_copy
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.version import __version__

LONGEST = 200  # characters of the line at the start of a run
SHARED = "a group's prompt and images are computed once"
FAULTS = "swift_grpo_ext.doctor.faults"  # loaded when an exception ends the process
NOT_UNDER_MEGATRON = "Megatron: no shared prompts, images, monitors"

_registered: dict[str, list[str]] = {}


def register(parts: Iterable[str] | None = None) -> dict[str, list[str]]:
    """See `swift_grpo_ext.register`.

    Calling it again adds only what is missing: ms-swift replays plugin files in workers and servers.
    """
    if getattr(sys.excepthook, "func", None) is not print_error:
        sys.excepthook = partial(print_error, sys.excepthook)
    settings = current_settings()
    part_names = list(PARTS if parts is None else parts)
    check_part_names(part_names)
    check_disabled(settings.disable)
    check_one_copy()
    refused: dict[str, EnvironmentMismatchError] = {}
    news = False
    for name in PARTS:
        if name not in part_names or name in settings.disable or name in _registered:
            continue
        try:
            versions.require(*PARTS[name].needs)
        except EnvironmentMismatchError as error:
            refused[name] = error
            continue
        _registered[name] = import_module(PARTS[name].module).register()
        news = True
    if news and _speaks_for_the_run():
        print(summary(), file=sys.stderr, flush=True)
    if news and settings.preflight != "off":
        import_module(PREFLIGHT).register()
    if refused:
        _refuse(refused)
    return dict(_registered)


def print_error(
    before: Callable[..., object],
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """End a process with one line for an error of ours or a known fault: 80 lines of stack say no more."""
    ours = error if isinstance(error, SwiftGrpoExtError) else import_module(FAULTS).in_one_line(error, trace)
    if ours:
        print(ours, file=sys.stderr)
    else:
        before(kind, error, trace)


def summary() -> str:
    """One line of at most 200 characters: versions, what is shared, rewards, and where the report will be."""
    command = swift_command(sys.argv) or "rlhf grpo"
    works = [
        name
        for name, names in _registered.items()
        if names and command in (PARTS[name].commands or [command])
    ]
    output, rewards = (" ".join(_typed(option, sys.argv)) for option in ("--output_dir", "--reward_funcs"))
    reports = "callbacks" in works and not current_settings().disables("callbacks.report")
    disabled = current_settings().disable
    shared = NOT_UNDER_MEGATRON if command == "megatron rlhf" else ", ".join(works)
    words = [
        f"swift-grpo-ext {__version__} on {versions.HOST} {versions.installed_version(versions.HOST)}",
        ", ".join(versions.between_tested("transformers", "torch", "vllm")),
        SHARED if {"trainer", "megatron"} & set(works) else shared,
        f"rewards {rewards}" if rewards and "rewards" in works else "",
        f"report in {output}" if output and reports else "",
        f"off: {', '.join(disabled)}" if disabled else "",
    ]
    return shorten(" | ".join(filter(None, words)), LONGEST, placeholder=" ...")


def _typed(option: str, argv: Sequence[str]) -> list[str]:
    """The values of an option where a command line gives it last; none if it stands in a file."""
    _, separator, behind = f" {' '.join(argv)} ".replace("=", " ").rpartition(f" {option} ")
    return list(takewhile(lambda word: not word.startswith("--"), behind.split() if separator else []))


def swift_command(argv: Sequence[str]) -> str:
    """The command whose process this is: ``rlhf grpo``, ``rollout``, ``megatron rlhf`` ...

    ``rlhf`` alone is another kind of training. Empty for anything but a command of ms-swift.
    """
    path = Path(argv[0])
    if path.suffix != ".py" or "cli" not in path.parts[-3:-1]:
        return ""
    if path.parent.name == "_megatron":
        return f"megatron {path.stem}"
    grpo = path.stem == "rlhf" and "grpo" in _typed("--rlhf_type", argv)
    return "rlhf grpo" if grpo else path.stem


def _speaks_for_the_run() -> bool:
    """True in the first rank's own process, not in its dataloader workers, engines or reward processes."""
    from multiprocessing import parent_process

    # "-c": a child of multiprocessing or of a reward.
    return parent_process() is None and sys.argv[0] != "-c" and os.environ.get("RANK", "0") == "0"


def _refuse(refused: dict[str, EnvironmentMismatchError]) -> NoReturn:
    reasons = {error.what: error.fix for error in refused.values()}
    fix = f"{next(iter(reasons.values()))}, or leave the parts out with SWIFT_GRPO_EXT_DISABLE="
    what = f"refused parts {', '.join(refused)}: {'; '.join(reasons)}"
    raise EnvironmentMismatchError(what, fix=fix + ",".join(refused))
