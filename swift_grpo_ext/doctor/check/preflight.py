"""Preflight inside a run (``SWIFT_GRPO_EXT_PREFLIGHT=1``): when the plugin is imported, before any model."""

from __future__ import annotations

import os
import sys
from multiprocessing import parent_process
from pathlib import Path

from rich.console import Console

from swift_grpo_ext.errors import RefusedError

_HOST_SCRIPT = "rlhf.py"


def register() -> list[str]:
    """The last of the parts, where ``SWIFT_GRPO_EXT_PREFLIGHT`` asks for it: `preflight`."""
    preflight()
    return []


def preflight() -> None:
    """Check this process's command line and print what was found to stderr.

    The first rank of each node does it; the launcher ends the others when it raises.

    Raises:
        RefusedError: The run will fail.
    """
    if not _is_first_rank_of_a_run():
        return
    from swift_grpo_ext.doctor.check import command

    if command.check(sys.argv[1:], console=Console(stderr=True, soft_wrap=True)) == 2:
        raise RefusedError(
            "preflight found errors, listed above",
            where="SWIFT_GRPO_EXT_PREFLIGHT",
            fix="fix them, or start without the variable",
        )


def _is_first_rank_of_a_run() -> bool:
    """True in the first process of ``swift rlhf`` on a node, not in its workers nor in a rollout server."""
    first = os.environ.get("LOCAL_RANK", "0") in ("0", "-1")
    return first and parent_process() is None and Path(sys.argv[0]).name == _HOST_SCRIPT
