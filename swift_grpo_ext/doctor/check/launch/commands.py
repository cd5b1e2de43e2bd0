"""What a script starts: ``swift`` behind torchrun, accelerate, srun or python -m, and its ranks."""

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from tree_sitter import Node

from swift_grpo_ext.doctor.check.unknown import Unknown, Word, written

_SUBCOMMANDS = "pt|sft|infer|merge[-_]lora|web[-_]ui|deploy|rollout|rlhf|sample|export|eval|app"
_MODULE = re.compile(
    r"(?:^|\W)swift[./]cli[./](_megatron[./])?(\w+?)(?:\.py)?$|(?:^|/)cli/(_megatron/)?(\w+?)\.py$"
)
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
_OPTIONS = {
    "NPROC_PER_NODE": ("nproc_per_node", "num_gpus"),
    "NNODES": ("nnodes", "num_nodes", "num_machines"),
    "NODE_RANK": ("node_rank", "machine_rank"),
    "MASTER_ADDR": ("master_addr", "main_process_ip", "rdzv_endpoint"),
    "WORLD_SIZE": ("num_processes",),
}
_VARIABLES = {option: name for name, options in _OPTIONS.items() for option in options}


@dataclass(frozen=True)
class Command:
    """One ``swift`` or ``megatron`` command with the variables it sees."""

    words: tuple[Word, ...]  # `swift`, the subcommand, its arguments
    environ: Mapping[str, Any] = field(default_factory=dict)  # variables that it sees: text, or Unknown
    unexported: frozenset[str] = frozenset()  # names that the script sets, and the command does not see
    waits: bool = False  # the script goes on only when it has ended
    folder: str | None = ""  # where it is started, relative to where the script is; None if that is not known
    complete: bool = True  # A variable that is not in `environ` is not set
    makes_files: bool = False  # A program ran before that may have written any file
    launcher: tuple[str, ...] = ()  # the words before it

    @property
    def subcommand(self) -> str:
        """``rlhf``, ``rollout``, ..."""
        return written(self.words[1]) if len(self.words) > 1 else ""

    @property
    def arguments(self) -> tuple[Word, ...]:
        """The words after the subcommand."""
        return self.words[2:]


@dataclass(frozen=True)
class Cut:
    """A place where the shell reads something else than was meant."""

    line: int  # its line, from 1
    # `comment`, `space`, `blank` or `backslash` (a missing one) where a command ends too early;
    # `invisible` for a sign that only looks like a blank;
    # `assignment` for a blank beside `=`
    reason: str
    text: str = ""  # the comment, or the assignment as it was meant


@dataclass
class Launch:
    """What a script does, as far as it is read; empty for a command that stands in none."""

    commands: list[Command] = field(default_factory=list)  # the `swift` commands so far
    not_followed: list[str] = field(default_factory=list)  # where others stand, which are not read
    cuts: list[Cut] = field(default_factory=list)  # where the shell reads something else than was meant
    names: set[str] = field(default_factory=set)  # variables that were ever set
    unread: list[str] = field(default_factory=list)  # files that it sources or runs and that are not here
    # variables that are set, and stand in single quotes in a command
    literal: list[str] = field(default_factory=list)
    makes_files: bool = False  # A program ran that may write any file
    windows: bool = False  # lines end in carriage return and line feed
    used: frozenset[str] = frozenset()  # variables that the script itself reads
    refusal: str = ""  # what bash says to its syntax; empty for nothing

    def all(self, subcommand: str) -> list[Command]:
        """The commands of that name."""
        return [command for command in self.commands if command.subcommand == subcommand]

    def first(self, subcommand: str) -> Command | None:
        """The first command of that name."""
        return next(iter(self.all(subcommand)), None)


def cut_between(previous: Node, node: Node) -> Cut:
    """Why the shell ends a command between two nodes."""
    whole = node
    while whole.parent is not None:
        whole = whole.parent
    between = (whole.text or b"")[previous.end_byte : node.start_byte].decode("utf-8", "replace")
    line = previous.end_point.row + 1
    before, sign, after = between.partition("#")
    if sign:
        return Cut(line + before.count("\n"), "comment", sign + after.splitlines()[0])
    if re.search(r"\\[ \t]+\n", between):
        return Cut(line, "space")
    return Cut(line + 1, "blank") if re.search(r"\n[ \t]*\n", between) else Cut(line, "backslash")


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
        if os.path.basename(written(word)) in ("swift", "megatron") and re.fullmatch(
            _SUBCOMMANDS, subcommand
        ):
            return [*words[:index], word], rest
        if isinstance(word, Unknown) and subcommand == "rlhf" and len(rest) > 1:  # "$SWIFT" rlhf --model ...
            return list(words[:index]), rest
        if module := _MODULE.search(written(word)):
            name = module[2] or module[4]
            mark = ["megatron"] if module[1] or module[3] else []
            return [*words[:index], *mark], [*([] if name == "main" else [name]), *rest]
    return None


def script_of(words: Sequence[str]) -> str:
    """The script in ``bash -x train.sh``, ``sbatch train.sh`` and ``./train.sh``; empty if there is none."""
    places = words[1:] if os.path.basename(words[0]) in _SHELLS else words[:1]
    return next((word for word in places if word.endswith((".sh", ".bash", ".slurm", ".sbatch"))), "")


def variables(words: Sequence[Word]) -> dict[str, Word]:
    """Variables that a launcher's words set: ``env A=1``, ranks and nodes of torchrun."""
    environ: dict[str, Word] = {}
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        option, sign, value = written(word).partition("=")
        name = _VARIABLES.get(option.lstrip("-").replace("-", "_")) if option.startswith("--") else option
        if not sign and name in _OPTIONS:
            environ[name] = following
        elif sign and name and re.fullmatch("[A-Z_]+", name):
            environ[name] = Unknown(value) if isinstance(word, Unknown) else value
    programs = names(words)
    launchers = sorted(programs & {"accelerate", "deepspeed", "mpirun", "mpiexec"})
    if "WORLD_SIZE" in environ:
        world, nodes = (written(word) for word in (environ.pop("WORLD_SIZE"), environ.get("NNODES", "1")))
        counted = world.isdecimal() and nodes.isdecimal()
        ranks = str(max(1, int(world) // max(1, int(nodes)))) if counted else Unknown("--num_processes")
        environ["NPROC_PER_NODE"] = ranks
    for launcher in launchers:  # what is not said is in its own file, or all GPUs
        for name in ("NPROC_PER_NODE", *(("MASTER_ADDR", "NODE_RANK") if launcher != "accelerate" else ())):
            environ.setdefault(name, Unknown(f"{name} of {launcher}"))
    if "rdzv_endpoint" in "".join(programs).replace("-", "_"):
        environ.setdefault("NODE_RANK", "0")  # given by the rendezvous
    return environ
