"""Preflight inside a run (``SWIFT_GRPO_EXT_PREFLIGHT=1`` or ``only``): before any model is loaded."""

import os
import sys
from multiprocessing import parent_process
from typing import TextIO

from rich.console import Console

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.registration import swift_command
from swift_grpo_ext.settings import current_settings


def register() -> list[str]:
    """Run preflight as ``SWIFT_GRPO_EXT_PREFLIGHT`` says; registered as the last of the parts."""
    (preflight_only if current_settings().preflight == "only" else preflight)()
    return []


def preflight() -> None:
    """Check this process's command line and print the findings to stderr; ms-swift's own checks come next.

    Done by the first rank of each node, and by Ray's driver; if it raises, the launcher ends the others.

    Raises:
        RefusedError: the run will fail.
    """
    if (
        "rlhf" in swift_command(sys.argv).split()
        and _is_first_rank()
        and _checked(sys.stderr, quick=True) == 2
    ):
        raise RefusedError(
            "preflight found errors, listed above",
            where="SWIFT_GRPO_EXT_PREFLIGHT",
            fix="fix them, or start without the variable",
        )


def preflight_only() -> None:
    """Check the command line as the user's shell has expanded it, print once, and end every rank.

    Exits with 2 if the run will fail, 3 if it could not be checked, else with 0, so that a script with
    ``set -e`` continues. Processes of other commands (``swift rollout``, ``swift sft``) end, too.
    """
    script = swift_command(sys.argv)
    if parent_process() is not None or not script:
        return
    code = 0
    if "rlhf" not in script.split():
        print(f"not checked: {script}, which is not started", flush=True)
    elif _is_first_rank():
        code = _checked(sys.stdout)
    sys.exit(code if code > 1 else 0)


def _checked(stream: TextIO, *, quick: bool = False) -> int:
    """Check this process's command line; returns the exit code of `command.check`."""
    from swift_grpo_ext.doctor.check import command

    console = Console(file=stream, soft_wrap=True)
    code = command.check(_command(), quick=quick, console=console)
    stream.flush()
    return code


def _command() -> list[str]:
    """This process's command, after the launcher that has really started it."""
    launcher = ["python"]
    if "LOCAL_RANK" in os.environ:  # torchrun's names; of another launcher's ranks nothing is known
        ranks = os.environ.get("LOCAL_WORLD_SIZE", "$NPROC_PER_NODE")
        nodes = os.environ.get("GROUP_WORLD_SIZE", "$NNODES")
        launcher = ["torchrun", f"--nproc_per_node={ranks}", f"--nnodes={nodes}"]
    engine = "_megatron." * ("megatron" in swift_command(sys.argv).split())
    return [*launcher, "-m", f"swift.cli.{engine}rlhf", *sys.argv[1:]]


def _is_first_rank() -> bool:
    """True for the first process of a node, unless it is a worker."""
    return os.environ.get("LOCAL_RANK", "0") in ("0", "-1") and parent_process() is None
