"""``swift-grpo-ext check``: collects the facts, applies the rules, prints what they found."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from swift_grpo_ext.doctor.check import rewards, rows
from swift_grpo_ext.doctor.check.arguments import CONFIG_SUFFIXES, config_words, parse
from swift_grpo_ext.doctor.check.launch import Command, Launch, read_script, syntax_refusal
from swift_grpo_ext.doctor.check.rules import grpo_only, host, sharding, table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Finding, Severity, exit_code, worst_first
from swift_grpo_ext.versions import installed_version

_PACKAGES = (
    "ms-swift",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "deepspeed",
    "torch",
    "torchvision",
    "msgspec",
    "nvidia-cublas-cu12",
    "vllm",
    "flash-attn",
)
_MOST_BYTES = 2**20
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def findings_of(run: Run, *, row_limit: int = 32) -> list[Finding]:
    """Everything that preflight finds in a run, worst first."""
    found = [*table.findings(run), *sharding.deepspeed_findings(run)]
    if not run.grpo:
        found = [finding for finding in found if finding.rule not in grpo_only.RULES]
    else:
        found += host.findings(run, found)
        read, of_rows = rows.read(run, row_limit)
        found += of_rows
        found += rewards.findings(run, read)
    return worst_first(dict.fromkeys(found))


def run_of(words: Sequence[str], *, gpu_memory: float = 0, environ: Mapping[str, str] | None = None) -> Run:
    """The run that a command line starts in this process's environment and folder.

    Args:
        words: The words after ``swift rlhf``; a configuration file may be the first.
        gpu_memory: GiB of one GPU; 0 to ask the first GPU of this machine.
        environ: The variables that it sees; this process's by default.

    Raises:
        SwiftGrpoExtError: The configuration file cannot be read.
    """
    return _run(words, os.environ if environ is None else environ, gpu_memory, (Path.cwd(),))


def _run(
    words: Sequence[str],
    environ: Mapping[str, str],
    gpu_memory: float,
    folders: tuple[Path, ...],
    launch: Launch | None = None,
    command: Command | None = None,
) -> Run:
    memory, device = _first_gpu()
    words, more = _with_config(list(words))
    arguments = parse(words)
    return Run(
        arguments=arguments,
        environ={**more, **environ, **_of_model_kwargs(arguments.model_kwargs)},
        versions={name: installed_version(name) for name in _PACKAGES},
        gpu_memory=gpu_memory or memory,
        device=device,
        launch=launch,
        command=command,
        folders=folders,
    )


def _of_model_kwargs(value: Any) -> dict[str, str]:
    """Variables that the host sets from ``--model_kwargs '{"max_pixels": 602112}'``."""
    try:
        table = value if isinstance(value, dict) else json.loads(value or "{}")
    except ValueError:
        return {}  # a rule of its own says so
    return {name.upper(): str(one) for name, one in table.items()} if isinstance(table, dict) else {}


def _with_config(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The words with those of a configuration file in its place, and the variables that it sets."""
    at = 0 if words and words[0].endswith(CONFIG_SUFFIXES) else None
    if "--config" in words[:-1]:  # the host does not take it so; its words are checked all the same
        at = words.index("--config") + 1
    if at is None:
        return words, {}
    inside, environ = config_words(Path(words[at]).expanduser())
    return [*words[:at], *inside, *words[at + 1 :]], environ


def _first_gpu() -> tuple[float, str]:
    """GiB and name of the first GPU; nothing on a machine without one."""
    import torch

    if not torch.cuda.is_available():
        return 0, ""
    properties = torch.cuda.get_device_properties(0)
    return properties.total_memory / 2**30, properties.name


def runs_of_script(path: Path, *, gpu_memory: float = 0) -> list[Run]:
    """The runs that a launch script starts, each with the variables that the script gives it.

    Raises:
        SwiftGrpoExtError: There is no ``swift rlhf`` in it, or it cannot be read.
    """
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise SwiftGrpoExtError(what, where=str(path), fix="give a file that you may read") from None
    launch = read_script(text, os.environ, lambda name: _sourced(name, path.resolve().parent))
    launch = replace(launch, refusal=syntax_refusal(text))
    commands = launch.all("rlhf")
    if not commands:
        others = ", ".join(f"swift {command.subcommand}" for command in launch.commands)
        what = f"no swift rlhf command{f', only {others}' if others else ''}"
        raise SwiftGrpoExtError(what, where=str(path), fix="give a script that has one")
    return [_run_of_command(command, launch, path, gpu_memory) for command in commands]


def _sourced(name: str, folder: Path) -> str | None:
    """Text of a file that a script reads, beside it or where check is started."""
    for place in (Path.cwd(), folder):
        path = place / Path(name).expanduser()
        if path.is_file() and path.stat().st_size < _MOST_BYTES:
            return path.read_bytes().decode("utf-8", errors="replace")
    return None


def run_of_script(path: Path, *, gpu_memory: float = 0) -> Run:
    """The first run of `runs_of_script`."""
    return runs_of_script(path, gpu_memory=gpu_memory)[0]


def _run_of_command(command: Command, launch: Launch, path: Path, gpu_memory: float) -> Run:
    here = path.resolve().parent
    folders = (Path.cwd(), here, here.parent)
    return _run(command.arguments, command.environ, gpu_memory, folders, launch, command)


def check(
    words: Sequence[str],
    *,
    as_json: bool = False,
    row_limit: int = 32,
    gpu_memory: float = 0,
    console: Console | None = None,
) -> int:
    """Check a command line, or a script or configuration file, and print what was found.

    Args:
        words: The words after ``swift rlhf``, with or without those two, or one file.
        as_json: Print a list of findings as JSON.
        row_limit: Rows of each dataset to look at.
        gpu_memory: GiB of one GPU; 0 to ask this machine.
        console: Where to print; stdout by default.

    Returns:
        0: nothing to fix, 1: warnings, 2: the run will fail.

    Raises:
        SwiftGrpoExtError: There is nothing to check.
    """
    found = [
        finding
        for run in _runs(_stripped(list(words)), gpu_memory)
        for finding in findings_of(run, row_limit=row_limit)
    ]
    found = worst_first(dict.fromkeys(found))
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=1, ensure_ascii=False))
    else:
        _print(found, console or Console())
    return exit_code(found)


def _stripped(words: list[str]) -> list[str]:
    """The words without a leading ``swift rlhf``."""
    for name in ("swift", "rlhf"):
        if words and words[0] == name:
            words = words[1:]
    return words


def _runs(words: list[str], gpu_memory: float) -> list[Run]:
    if not words:
        fix = "swift-grpo-ext check --model ... (the arguments of swift rlhf), or a launch script"
        raise SwiftGrpoExtError("nothing to check", fix=fix)
    is_file = not words[0].startswith("-") and not words[0].endswith(CONFIG_SUFFIXES)
    if not is_file:
        return [run_of(words, gpu_memory=gpu_memory)]
    path = Path(words[0]).expanduser()
    if not path.is_file():
        fix = "give a launch script, a configuration file, or the arguments of swift rlhf"
        raise SwiftGrpoExtError("no such script", where=words[0], fix=fix)
    if len(words) > 1:
        what = f"only a script's own text is read, not the words behind it: {' '.join(words[1:])[:80]}"
        fix = "check one script at a time, or give all arguments of swift rlhf in the place of the script"
        raise SwiftGrpoExtError(what, where=words[0], fix=fix)
    return runs_of_script(path, gpu_memory=gpu_memory)


def _print(found: list[Finding], console: Console) -> None:
    for finding in found:
        place = f" [{finding.where}]" if finding.where else ""
        fix = f"\n        -> {finding.fix}" if finding.fix else ""
        reports = (
            f"  ({finding.rule}: {', '.join(finding.reports)})" if finding.reports else f"  ({finding.rule})"
        )
        console.print(
            f"{finding.severity.value:8}{finding.what}{place}{reports}{fix}",
            style=_COLOURS[finding.severity],
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    verdicts = ("nothing to fix", "it will run, look at the warnings", "it will fail")
    console.print(verdicts[exit_code(found)], style="bold", highlight=False)
