"""What a script starts: ``swift`` behind torchrun, accelerate, srun or python -m, and its ranks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from swift_grpo_ext.doctor.check.words import base, is_known, unknown

_SUBCOMMANDS = "pt|sft|infer|merge[-_]lora|web[-_]ui|deploy|rollout|rlhf|sample|export|eval|app"
_MODULE = re.compile(
    r"(?:^|\W)swift[./]cli[./](_megatron[./])?(\w+?)(?:\.py)?$|(?:^|/)cli/(_megatron/)?(\w+?)\.py$"
)
_INNER = re.compile(
    rf"(?:^|[\s/;&(])(?:swift|megatron)\s+(?:{_SUBCOMMANDS})\b|swift[./]cli[./]|/cli/rlhf\.py"
)
# Another machine or a container, with files and variables of its own.
ELSEWHERE = frozenset(
    ("ssh", "docker", "podman", "nerdctl", "kubectl", "singularity", "apptainer", "pdsh", "enroot")
)
# The script goes on while it runs, or something else decides when it runs; it may be fed a script.
DETACHED = ELSEWHERE | {"tmux", "screen", "srun", "sbatch", "daemonize", "qsub", "bsub"}
SHELLS = ("bash", "sh", "zsh", "dash", "ksh", "sbatch", "qsub", "bsub")
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

    words: tuple[str, ...]  # `swift`, the subcommand, its arguments
    # variables that it sees, or was meant to see: those that are set and not exported too
    environ: Mapping[str, str] = field(default_factory=dict)
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


@dataclass(frozen=True)
class Cut:
    """A place where the shell reads something else than was meant."""

    line: int  # its line, from 1
    # `comment`, `space`, `blank` or `backslash` (a missing one) where a command ends too early;
    # `assignment` for a blank beside `=`
    reason: str
    text: str = ""  # the comment, or the assignment as it was meant


@dataclass
class Launch:
    """What a script does, as far as it is read; empty for a command that stands in none."""

    commands: list[Command] = field(default_factory=list)  # the `swift` commands so far
    cuts: list[Cut] = field(default_factory=list)  # where the shell reads something else than was meant
    names: set[str] = field(default_factory=set)  # variables that were ever set
    unread: list[str] = field(default_factory=list)  # files that it sources or runs and that are not here
    # variables that are set, and stand in single quotes in a command
    literal: list[str] = field(default_factory=list)
    made: set[str] = field(default_factory=set)  # files that it writes
    texts: dict[str, str] = field(default_factory=dict)  # content of those that are written out in it
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


def names(words: Sequence[str]) -> set[str]:
    """Words without their folders, among them the programs."""
    return set(map(base, words))


def split_at_swift(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """The launcher's words, and the subcommand with its arguments; None where no swift is started.

    Known are ``swift rlhf``, ``python -m swift.cli.rlhf``, ``.../cli/rlhf.py`` and ``swift.cli.main rlhf``.
    """
    for index, word in enumerate(words):
        rest = list(words[index + 1 :])
        if base(word) in ("swift", "megatron") and rest and re.fullmatch(_SUBCOMMANDS, rest[0]):
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
        if base(word) in SHELLS and re.fullmatch(r"-[a-z]*c", option):
            return [words[index + 2]]
    return []


def script_of(words: Sequence[str]) -> list[str] | None:
    """The script and its arguments in ``bash -x train.sh 8``, ``sbatch train.sh`` and ``./train.sh``."""
    for index, word in enumerate(words):
        if word.endswith((".sh", ".bash", ".slurm", ".sbatch")) and (index == 0 or not word.startswith("-")):
            return list(words[index:])
        if base(word) in SHELLS:
            return [one for one in words[index + 1 :] if not one.startswith("-")] or None
    return None


def variables(words: Sequence[str]) -> dict[str, str]:
    """Variables that a launcher's words set: ``env A=1``, ``docker -e A=1``, ranks and nodes of torchrun."""
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        name = word.lstrip("-").replace("-", "_").partition("=")[0]
        if word.startswith("--") and name in _VARIABLES:
            found[_VARIABLES[name]] = word.partition("=")[2] or "".join(words[index + 1 : index + 2])
        elif match := re.match(r"(?:--env=|--export=ALL,|-e)?([A-Z_][A-Z0-9_]*)=(.*)", word, re.DOTALL):
            found[match[1]] = match[2]
    world, nodes = found.pop("WORLD_SIZE", ""), found.get("NNODES", "1")
    if world.isdecimal() and nodes.isdecimal():
        found["NPROC_PER_NODE"] = str(max(1, int(world) // max(1, int(nodes))))
    elif world:
        found["NPROC_PER_NODE"] = unknown("--num_processes")
    for launcher in sorted(names(words) & {"accelerate", "deepspeed", "mpirun", "mpiexec"}):
        found.setdefault("NPROC_PER_NODE", unknown(f"ranks of {launcher}"))  # a file of its own, or all GPUs
        if launcher != "accelerate":  # these start the processes of every node
            for name in ("MASTER_ADDR", "NODE_RANK"):
                found.setdefault(name, unknown(f"{name} of the launcher"))
    if any(word.lstrip("-").replace("-", "_").startswith("rdzv_endpoint") for word in words):
        found.setdefault("NODE_RANK", "0")  # given by the rendezvous
    if re.fullmatch(r"\d+:\d+", found.get("NNODES", "")):
        found["NNODES"] = unknown(found["NNODES"])
    return found
