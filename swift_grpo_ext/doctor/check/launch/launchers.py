"""The words before ``swift``: torchrun, accelerate, srun or ``python -m``, and the ranks that they say."""

import os.path
import re
from collections.abc import Sequence
from itertools import zip_longest

from swift_grpo_ext.doctor.check.unknown import Unknown, Word, written

_SUBCOMMAND = re.compile("pt|sft|infer|merge[-_]lora|web[-_]ui|deploy|rollout|rlhf|sample|export|eval|app")
_MODULE = re.compile(r"(?:^|\W)(?:swift[./]cli[./]|cli/(?=.*\.py$))(_megatron[./])?(\w+?)(?:\.py)?$")
INNER = re.compile(
    r"(?:^|[\s/;&('\"])(?:swift|megatron)\s+rlhf\b|swift[./]cli[./](?:_megatron[./])?rlhf|/cli/rlhf\.py"
)
"""Text that starts ``swift rlhf``."""
# Another machine or a container, with files and variables of its own.
ELSEWHERE = frozenset(
    ("ssh", "docker", "podman", "nerdctl", "kubectl", "singularity", "apptainer", "pdsh", "enroot")
)
# The script goes on while it runs, or something else decides when it runs.
DETACHED = frozenset(("tmux", "screen", "srun", "sbatch", "daemonize", "qsub", "bsub"))
_SHELLS = ("bash", "sh", "zsh", "sbatch", "qsub", "srun")
# Options of torchrun, deepspeed and accelerate; the last one counts the ranks of all nodes together.
_VARIABLES = {
    **dict.fromkeys(("nproc_per_node", "num_gpus"), "NPROC_PER_NODE"),
    **dict.fromkeys(("nnodes", "num_nodes", "num_machines"), "NNODES"),
    **dict.fromkeys(("node_rank", "machine_rank"), "NODE_RANK"),
    **dict.fromkeys(("master_addr", "main_process_ip", "rdzv_endpoint"), "MASTER_ADDR"),
    "num_processes": "WORLD_SIZE",
}


def names(words: Sequence[Word]) -> set[str]:
    """Words without their folders, among them the programs."""
    return {os.path.basename(written(word)) for word in words}


def split_at_swift(words: Sequence[Word]) -> tuple[list[Word], list[Word]] | None:
    """The launcher's words, and the subcommand with its arguments; None where no swift is started.

    Known are ``swift rlhf``, ``python -m swift.cli.rlhf``, ``.../cli/rlhf.py`` and ``swift.cli.main rlhf``.
    """
    for index, word in enumerate(words):
        rest = list(words[index + 1 :])
        subcommand = written(rest[0]) if rest else ""
        if names([word]) <= {"swift", "megatron"} and _SUBCOMMAND.fullmatch(subcommand):
            return [*words[:index], word], rest
        if isinstance(word, Unknown) and subcommand == "rlhf" and len(rest) > 1:  # "$SWIFT" rlhf --model ...
            return list(words[:index]), rest
        if module := _MODULE.search(written(word)):
            mark = ["megatron"] if module[1] else []
            return [*words[:index], *mark], [*([] if module[2] == "main" else [module[2]]), *rest]
    return None


def looks_for_a_file(launcher: Sequence[Word]) -> bool:
    """Whether a launcher takes `swift`, which is a command, for a file or a module: it will not start it."""
    *before, last = map(written, launcher or ("",))
    return last == "swift" and ("torchrun" in before or "deepspeed" in before or before[-1:] == ["-m"])


def script_of(words: Sequence[str]) -> str:
    """The script in ``bash -x train.sh``, ``sbatch train.sh`` and ``./train.sh``; empty if there is none."""
    places = words[1:] if os.path.basename(words[0]) in _SHELLS else words[:1]
    return next((word for word in places if word.endswith((".sh", ".bash", ".slurm", ".sbatch"))), "")


def variables(words: Sequence[Word]) -> dict[str, Word]:
    """Variables that a launcher's words set: ``env A=1``, ranks and nodes of torchrun."""
    environ: dict[str, Word] = {}
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        option, sign, value = written(word).partition("=")
        name = _VARIABLES.get(option[2:].replace("-", "_"), "") if option.startswith("--") else option
        if not sign and name in _VARIABLES.values():
            environ[name] = following
        elif sign and re.fullmatch("[A-Z_]+", name):
            environ[name] = Unknown(value) if isinstance(word, Unknown) else value
    if "WORLD_SIZE" in environ:
        world, nodes = (written(word) for word in (environ.pop("WORLD_SIZE"), environ.get("NNODES", "1")))
        counted = world.isdecimal() and nodes.isdecimal()
        ranks = str(max(1, int(world) // max(1, int(nodes)))) if counted else Unknown("--num_processes")
        environ["NPROC_PER_NODE"] = ranks
    for launcher in names(words) & {"accelerate", "deepspeed", "mpirun", "mpiexec"}:
        # what is not said is in its own file, or all GPUs
        for name in ("NPROC_PER_NODE", "MASTER_ADDR", "NODE_RANK")[: 1 if launcher == "accelerate" else None]:
            environ.setdefault(name, Unknown(f"{name} of {launcher}"))
    if any("rdzv" in written(word) for word in words):
        environ.setdefault("NODE_RANK", "0")  # given by the rendezvous
    return environ
