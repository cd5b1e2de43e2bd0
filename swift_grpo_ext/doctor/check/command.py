"""``swift-grpo-ext check``: collects the facts, applies the rules, prints what they found."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from swift_grpo_ext.doctor.check import rows
from swift_grpo_ext.doctor.check.arguments import parse
from swift_grpo_ext.doctor.check.launch import Launch, read_script
from swift_grpo_ext.doctor.check.rules import stack, table
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
)
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def findings_of(run: Run, *, row_limit: int = 32) -> list[Finding]:
    """Everything that preflight finds in a run, worst first."""
    found = [*table.findings(run), *stack.deepspeed_findings(run)]
    found += rows.findings(run, row_limit)
    return worst_first(found)


def run_of(words: Sequence[str], *, gpu_memory: float = 0) -> Run:
    """The run that a command line starts in this process's environment and folder."""
    memory, device = _first_gpu()
    return Run(
        arguments=parse(words),
        environ=dict(os.environ),
        versions={name: installed_version(name) for name in _PACKAGES},
        gpu_memory=gpu_memory or memory,
        device=device,
        folder=Path.cwd(),
    )


def _first_gpu() -> tuple[float, str]:
    """GiB and name of the first GPU; nothing on a machine without one."""
    import torch

    if not torch.cuda.is_available():
        return 0, ""
    properties = torch.cuda.get_device_properties(0)
    return properties.total_memory / 2**30, properties.name


def run_of_script(path: Path, *, gpu_memory: float = 0) -> Run:
    """The run that a launch script starts; the variables are those that the script sets.

    Raises:
        SwiftGrpoExtError: There is no ``swift rlhf`` in it.
    """
    launch: Launch = read_script(path.read_text(encoding="utf-8"))
    command = launch.first("rlhf")
    if command is None:
        raise SwiftGrpoExtError("no swift rlhf command", where=str(path), mend="give a script that has one")
    return Run(
        arguments=parse(command.arguments),
        environ=command.environ,
        versions={name: installed_version(name) for name in _PACKAGES},
        gpu_memory=gpu_memory,
        launch=launch,
        folder=path.parent,
    )


def check(
    words: Sequence[str],
    *,
    as_json: bool = False,
    row_limit: int = 32,
    gpu_memory: float = 0,
    console: Console | None = None,
) -> int:
    """Check a command line, or a script if that is all there is, and print what was found.

    Returns:
        0: nothing to mend, 1: warnings, 2: the run will fail.
    """
    is_script = len(words) == 1 and not words[0].startswith("-") and Path(words[0]).is_file()
    if is_script:
        run = run_of_script(Path(words[0]), gpu_memory=gpu_memory)
    else:
        run = run_of(words, gpu_memory=gpu_memory)
    found = findings_of(run, row_limit=row_limit)
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=1, ensure_ascii=False))
    else:
        _print(found, console or Console())
    return exit_code(found)


def _print(found: list[Finding], console: Console) -> None:
    for finding in found:
        place = f" [{finding.where}]" if finding.where else ""
        mend = f"\n        -> {finding.mend}" if finding.mend else ""
        reports = (
            f"  ({finding.rule}: {', '.join(finding.reports)})" if finding.reports else f"  ({finding.rule})"
        )
        console.print(
            f"{finding.severity.value:8}{finding.what}{place}{reports}{mend}",
            style=_COLOURS[finding.severity],
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    verdicts = ("nothing to mend", "it will run, look at the warnings", "it will fail")
    console.print(verdicts[exit_code(found)], style="bold", highlight=False)
