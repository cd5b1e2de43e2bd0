"""Preflight inside a run (``SWIFT_GRPO_EXT_PREFLIGHT=only``): before any model is loaded."""

import os
import sys
from multiprocessing import parent_process

from swift_grpo_ext.registration import swift_command


def register() -> list[str]:
    """Check the command line as the user's shell has expanded it, print once, and end every rank.

    Exits with 2 if the run will fail, 3 if it could not be checked, else with 0, so that a script with
    ``set -e`` continues. Processes of other commands (``swift rollout``, ``swift sft``) end, too.
    """
    script = swift_command(sys.argv)
    if parent_process() is not None or not script:
        return []
    code = 0
    if "rlhf" not in script.split():
        print(f"not checked: {script}, which is not started", flush=True)
    elif os.environ.get("LOCAL_RANK", "0") in ("0", "-1"):  # the first of its node, and Ray's driver
        from swift_grpo_ext.doctor.check import command

        code = command.check(_command())
        sys.stdout.flush()
    sys.exit(code if code > 1 else 0)


def _command() -> list[str]:
    """This process's command, after the launcher that has really started it."""
    launcher = ["python"]
    if "LOCAL_RANK" in os.environ:  # torchrun's names; of another launcher's ranks nothing is known
        ranks = os.environ.get("LOCAL_WORLD_SIZE", "$NPROC_PER_NODE")
        nodes = os.environ.get("GROUP_WORLD_SIZE", "$NNODES")
        launcher = ["torchrun", f"--nproc_per_node={ranks}", f"--nnodes={nodes}"]
    engine = "_megatron." * ("megatron" in swift_command(sys.argv).split())
    return [*launcher, "-m", f"swift.cli.{engine}rlhf", *sys.argv[1:]]
