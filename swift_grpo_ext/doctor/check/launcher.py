"""Finds the ``swift`` command behind torchrun, accelerate, deepspeed, srun or python -m, and its ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swift_grpo_ext.doctor.check.words import is_known, unknown

_SUBCOMMANDS = "pt|sft|infer|merge[-_]lora|web[-_]ui|deploy|rollout|rlhf|sample|export|eval|app"
_MODULE = re.compile(
    r"(?:^|\W)swift[./]cli[./](_megatron[./])?(\w+?)(?:\.py)?$|(?:^|/)cli/(_megatron/)?(\w+?)\.py$"
)
_INNER = re.compile(
    rf"(?:^|[\s/;&(])(?:swift|megatron)\s+(?:{_SUBCOMMANDS})\b|swift[./]cli[./]|/cli/rlhf\.py"
)
_ELSEWHERE = frozenset(
    ("ssh", "docker", "podman", "nerdctl", "kubectl", "singularity", "apptainer", "pdsh", "enroot")
)
_DETACHED = _ELSEWHERE | {"tmux", "screen", "srun", "sbatch", "daemonize", "qsub", "bsub"}
_SHELLS = ("bash", "sh", "zsh", "dash", "ksh", "sbatch", "qsub", "bsub")
# Options of torchrun, deepspeed and accelerate; the last one counts the ranks of all nodes together.
_OPTIONS = {
    "nproc_per_node": "NPROC_PER_NODE",
    "num_gpus": "NPROC_PER_NODE",
    "nnodes": "NNODES",
    "num_nodes": "NNODES",
    "num_machines": "NNODES",
    "node_rank": "NODE_RANK",
    "machine_rank": "NODE_RANK",
    "num_processes": "WORLD_SIZE",
    "master_addr": "MASTER_ADDR",
    "main_process_ip": "MASTER_ADDR",
    "rdzv_endpoint": "MASTER_ADDR",
}


@dataclass(frozen=True)
class Command:
    """One ``swift`` or ``megatron`` command with the variables it sees."""

    words: tuple[str, ...]  # `swift`, the subcommand, its arguments
    # variables that it sees, or was meant to see: those that are set and not exported too
    environ: Mapping[str, str]
    unexported: frozenset[str] = frozenset()  # names of the latter
    waits: bool = False  # the script goes on only when it has ended
    folder: str | None = ""  # where it is started, relative to where the script is; None if that is not known
    complete: bool = True  # A variable that is not in `environ` is not set
    makes_files: bool = False  # A program ran before that may have written any file
    elsewhere: bool = False  # it runs on another machine or in a container, with files of its own
    launcher: tuple[str, ...] = ()  # the words before it

    @property
    def subcommand(self) -> str:
        """``rlhf``, ``rollout``, ..."""
        return self.words[1] if len(self.words) > 1 else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after the subcommand."""
        return self.words[2:]

    def value(self, name: str) -> str:
        """What an option is given, as text; empty if it is not there."""
        for index, word in enumerate(self.arguments):
            flag, _, value = word.partition("=")
            if flag.startswith("--") and flag.lstrip("-").replace("-", "_") == name:
                return value or "".join(self.arguments[index + 1 : index + 2])
        return ""


def split_at_swift(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """The launcher's words, and the subcommand with its arguments; None where no swift is started.

    Known are ``swift rlhf``, ``python -m swift.cli.rlhf``, ``.../cli/rlhf.py`` and ``swift.cli.main rlhf``.
    """
    for index, word in enumerate(words):
        rest = list(words[index + 1 :])
        name = word.rsplit("/", 1)[-1]
        if name in ("swift", "megatron") and rest and re.fullmatch(_SUBCOMMANDS, rest[0]):
            return [*words[:index], word], rest
        if not is_known(word) and rest[:1] == ["rlhf"] and any(one.startswith("--") for one in rest):
            return list(words[:index]), rest
        if module := _MODULE.search(word):
            name = module[2] or module[4]
            mark = ["megatron"] if module[1] or module[3] else []
            return [*words[:index], *mark], [*([] if name == "main" else [name]), *rest]
    return None


def inner_scripts(words: Sequence[str]) -> list[str]:
    """Arguments that are themselves scripts: of ``bash -c``, tmux, ssh, ``sbatch --wrap=``."""
    found = [re.sub(r"^--?[\w-]+=", "", word) for word in words[1:] if " " in word and _INNER.search(word)]
    if found:
        return found
    for index, word in enumerate(words[:-2]):
        option = words[index + 1]
        if word.rsplit("/", 1)[-1] in _SHELLS and re.fullmatch(r"-[a-z]*c", option):
            return [words[index + 2]]
    return []


def script_of(words: Sequence[str]) -> list[str] | None:
    """The script and its arguments in ``bash -x train.sh 8``, ``sbatch train.sh`` and ``./train.sh``."""
    for index, word in enumerate(words):
        if word.endswith((".sh", ".bash", ".slurm", ".sbatch")) and (index == 0 or not word.startswith("-")):
            return list(words[index:])
        name = word.rsplit("/", 1)[-1]
        if name in _SHELLS:
            rest = [one for one in words[index + 1 :] if not one.startswith("-")]
            return rest or None
    return None


def is_launcher(name: str) -> bool:
    """It may be fed a script on its standard input."""
    return name in _DETACHED


def is_elsewhere(words: Sequence[str]) -> bool:
    """Another machine or a container, with files and variables of its own."""
    return any(word.rsplit("/", 1)[-1] in _ELSEWHERE for word in words)


def is_detached(words: Sequence[str]) -> bool:
    """The script goes on while it runs, or something else decides when it runs."""
    return any(word.rsplit("/", 1)[-1] in _DETACHED for word in words)


def variables(words: Sequence[str]) -> dict[str, str]:
    """Variables that a launcher's words set: ``env A=1``, ``docker -e A=1``, ranks and nodes of torchrun."""
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        name = word.lstrip("-").replace("-", "_").partition("=")[0]
        if word.startswith("--") and name in _OPTIONS:
            found[_OPTIONS[name]] = word.partition("=")[2] or "".join(words[index + 1 : index + 2])
        elif match := re.match(r"(?:--env=|--export=ALL,|-e)?([A-Z_][A-Z0-9_]*)=(.*)", word, re.DOTALL):
            found[match[1]] = match[2]
    world, nodes = found.pop("WORLD_SIZE", ""), found.get("NNODES", "1")
    if world.isdecimal() and nodes.isdecimal():
        found["NPROC_PER_NODE"] = str(max(1, int(world) // max(1, int(nodes))))
    elif world:
        found["NPROC_PER_NODE"] = unknown("--num_processes")
    names = {word.rsplit("/", 1)[-1] for word in words}
    for launcher in ("accelerate", "deepspeed", "mpirun", "mpiexec"):  # a file of its own, or all GPUs
        if launcher in names:
            found.setdefault("NPROC_PER_NODE", unknown(f"ranks of {launcher}"))
    for name in ("MASTER_ADDR", "NODE_RANK"):  # these start the processes of every node
        if {"deepspeed", "mpirun", "mpiexec"} & names:
            found.setdefault(name, unknown(f"{name} of the launcher"))
    if any(word.lstrip("-").replace("-", "_").startswith("rdzv_endpoint") for word in words):
        found.setdefault("NODE_RANK", "0")  # given by the rendezvous
    if re.fullmatch(r"\d+:\d+", found.get("NNODES", "")):
        found["NNODES"] = unknown(found["NNODES"])
    return found
