"""The one function that hooks the parts into ms-swift."""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from swift_grpo_ext import versions
from swift_grpo_ext.errors import EnvironmentMismatchError
from swift_grpo_ext.parts import PARTS, PREFLIGHT, check_disabled, check_part_names
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.version import __version__

LONGEST = 160  # characters of the line at the start of a run
NOT_UNDER_MEGATRON = "Megatron: no shared prompts, images, monitors"

_registered: dict[str, list[str]] = {}


def register(parts: Iterable[str] | None = None) -> dict[str, list[str]]:
    """See `swift_grpo_ext.register`.

    Calling it again adds only what is missing: ms-swift replays plugin files in workers and servers.
    """
    settings = current_settings()
    wanted = list(PARTS if parts is None else parts)
    check_part_names(wanted)
    check_disabled(settings.disable)
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
    if news and _speaks_for_the_run():
        print(summary(), file=sys.stderr, flush=True)
    if news and settings.preflight != "off":
        import_module(PREFLIGHT.module).register()
    if refused:
        _refuse(refused)
    return dict(_registered)


def summary() -> str:
    """One line of at most 160 characters: versions, and what of the package works in this process."""
    command = swift_command(sys.argv)
    working = [
        f"{name}: {names[0] if len(names) == 1 and len(names[0]) < 6 else len(names)}"
        for name, names in _registered.items()
        if names and (not PARTS[name].commands or (command or "rlhf grpo") in PARTS[name].commands)
    ]
    if command == "megatron rlhf" and not _registered.get("megatron"):
        working = [*(text for text in working if not text.startswith("callbacks")), NOT_UNDER_MEGATRON]
    head = f"swift-grpo-ext {__version__} on {versions.HOST} {versions.installed_version(versions.HOST)}"
    disabled = current_settings().disable
    for off in (", ".join(disabled), str(len(disabled))):
        words = [head, *working, *([f"off: {off}"] if disabled else ()), "swift-grpo-ext env"]
        line = " | ".join(words)
        if len(line) <= LONGEST:
            break
    return line[:LONGEST]


def swift_command(argv: Sequence[str]) -> str:
    """The command whose process this is: ``rlhf grpo``, ``rollout``, ``megatron rlhf`` ...

    ``rlhf`` alone is another kind of training. Empty if it is no command of ms-swift.
    """
    path = Path(argv[0])
    if path.suffix != ".py" or "cli" not in path.parts[-3:-1]:
        return ""
    if path.parent.name == "_megatron":
        return f"megatron {path.stem}"
    grpo = path.stem == "rlhf" and "--rlhf_type grpo" in " ".join(argv[1:]).replace("=", " ")
    return "rlhf grpo" if grpo else path.stem


def _speaks_for_the_run() -> bool:
    """True in the first rank's own process, not in its dataloader workers, engines or reward processes."""
    from multiprocessing import parent_process

    of_a_script = sys.argv[0] != "-c"  # what multiprocessing and the children of rewards are started with
    return parent_process() is None and of_a_script and os.environ.get("RANK", "0") == "0"


def _refuse(refused: dict[str, EnvironmentMismatchError]) -> NoReturn:
    reasons = {error.what: error.fix for error in refused.values()}
    fix = f"{next(iter(reasons.values()))}, or leave the parts out with SWIFT_GRPO_EXT_DISABLE="
    what = f"refused parts {', '.join(refused)}: {'; '.join(reasons)}"
    raise EnvironmentMismatchError(what, fix=fix + ",".join(refused))
