"""What a script starts: its ``swift`` commands, and the ranks that the words before them say."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from swift_grpo_ext.doctor.check.unknown import Unknown, Word, written

INNER = re.compile(
    r"(?:^|[\s/;&('\"])(?:swift|megatron)\s+rlhf\b|swift[./]cli[./](?:_megatron[./])?rlhf|/cli/rlhf\.py"
)
"""Text that starts ``swift rlhf``."""
PRINT = frozenset(("echo", "printf", "which", "type", "log", "info", "grep", "pgrep", "pkill", "pip", "ps"))
"""Programs that print their words, or look for them."""
_PROGRAM = re.compile(r"(?:.*/)?(swift|megatron)")
_SUBCOMMAND = re.compile(
    "pt|sft|infer|merge[-_]lora|web[-_]ui|deploy|rollout|rlhf|grpo|sample|export|eval|app"
)
_MODULE = re.compile(r"(?:.*\W)?(?:swift[./]cli[./]|cli/(?=.*\.py$))(_megatron[./])?(\w+?)(?:\.py)?")
# Programs that start what follows them; of those in the second line nothing waits for the end.
_STARTERS = re.compile(
    r"(?:.*/)?(?:env|nohup|time|exec|eval|command|sudo|numactl|parallel|taskset|nice|ionice|timeout|stdbuf|setsid|python[\d.]*"
    r"|torchrun|accelerate|deepspeed|mpirun|mpiexec|conda|mamba|micromamba|uv|poetry|ray|xargs)|\$.*|[A-Z_]+=.*"
    r"|srun|[\d,]+"
)
_ELSEWHERE = frozenset(("docker", "kubectl", "singularity", "apptainer"))
# Options of torchrun, deepspeed and accelerate; the last one counts the ranks of all nodes together.
_VARIABLES = {
    **dict.fromkeys(("nproc_per_node", "num_gpus"), "NPROC_PER_NODE"),
    **dict.fromkeys(("nnodes", "num_nodes", "num_machines"), "NNODES"),
    "num_processes": "WORLD_SIZE",
}


@dataclass(frozen=True, eq=False)
class Command:
    """One ``swift`` or ``megatron`` command with the variables it sees."""

    words: tuple[Word, ...]  # `swift`, the subcommand, its arguments
    environ: Mapping[str, Any] = field(default_factory=dict)  # variables that it sees: text, or Unknown
    unexported: frozenset[str] = frozenset()  # names that the script sets, and the command does not see
    waits: bool = False  # the script goes on only when it has ended
    moved: bool = False  # the script may have changed its folder before it
    makes_files: bool = False  # a program ran before that may have written any file
    set_by: str = ""  # what may set any variable; empty: one that is not in `environ` is not set
    is_single: bool = False  # python starts it, so it is one process whatever the variables say

    @property
    def subcommand(self) -> str:
        """``rlhf``, ``rollout``, ..."""
        return written(self.words[1]) if len(self.words) > 1 else ""


@dataclass
class Launch:
    """What a script does, as far as it is read; empty for a command that stands in none."""

    commands: list[Command] = field(default_factory=list)  # the `swift` commands so far
    not_followed: list[str] = field(default_factory=list)  # where others stand, which are not read
    cuts: list[int] = field(default_factory=list)  # lines with options that the command above has lost
    names: set[str] = field(default_factory=set)  # variables that were ever set
    text: str = ""  # the script itself

    def all(self, *subcommands: str) -> list[Command]:
        """The commands of these names."""
        return [command for command in self.commands if command.subcommand in subcommands]


@dataclass(frozen=True)
class Start:
    """How a command of ms-swift is started."""

    program: str  # `swift` or `megatron`
    words: tuple[Word, ...]  # the subcommand and its arguments
    launcher: tuple[Word, ...]  # the words before
    is_module: bool = False  # a file or a module of ms-swift, and not its own launcher

    def has(self, *programs: str) -> bool:
        """Whether one of these programs is in the launcher."""
        return any(written(word).rpartition("/")[2] in programs for word in self.launcher)

    @property
    def is_followed(self) -> bool:
        """The words before it start it, here: they do not print it, and no container does."""
        first, last = (
            (written(self.launcher[place]) for place in (0, -1)) if self.launcher else ("env", "env")
        )
        is_file = self.has("torchrun", "deepspeed") or last == "-m"  # `torchrun swift` looks for such a file
        is_started = _STARTERS.fullmatch(first) and not self.has(*_ELSEWHERE)
        return bool(is_started) and (self.is_module or not is_file)

    @property
    def is_detached(self) -> bool:
        """The script goes on while it runs, or something else decides when it runs."""
        return self.has("srun")

    @property
    def is_single(self) -> bool:
        """Python starts it without a launcher of ranks."""
        return self.is_module and not self._says_ranks and not self.has("srun")

    @property
    def _says_ranks(self) -> bool:
        of_torch = self.has("torchrun", "torch.distributed.run", "torch.distributed.launch")
        return of_torch or self.has("accelerate", "deepspeed", "mpirun", "mpiexec")

    @property
    def environ(self) -> dict[str, Word]:
        """Variables that the launcher's words set: ``env A=1``, ranks and nodes of torchrun."""
        environ: dict[str, Word] = {}
        for word, following in zip_longest(self.launcher, self.launcher[1:], fillvalue=""):
            option, sign, value = written(word).partition("=")
            name = _VARIABLES.get(option.lstrip("-").replace("-", "_"), option)
            if name in _VARIABLES.values() and not sign:
                environ[name] = following
            elif sign and re.fullmatch("[A-Z_]+", name):
                environ[name] = Unknown(value) if isinstance(word, Unknown) else value
        if "WORLD_SIZE" in environ:
            world, nodes = (written(word) for word in (environ.pop("WORLD_SIZE"), environ.get("NNODES", "1")))
            counted = world.isdecimal() and nodes.isdecimal()
            ranks = str(max(1, int(world) // max(1, int(nodes)))) if counted else Unknown("--num_processes")
            environ["NPROC_PER_NODE"] = ranks
        if self._says_ranks:
            # What torchrun is not told is 1, the others read a file or take all GPUs; an argument that is not
            # known may be any number.
            others = self.has("accelerate", "deepspeed", "mpirun", "mpiexec")
            is_open = any(isinstance(word, Unknown) and word.many for word in self.launcher)
            environ.setdefault(
                "NPROC_PER_NODE", Unknown("the launcher's ranks") if others or is_open else "1"
            )
            environ.setdefault("NNODES", Unknown("the launcher's nodes") if is_open else "1")
        return environ


def start_of(words: Sequence[Word]) -> Start | None:
    """How these words start ms-swift; None where they do not.

    Known are ``swift rlhf``, ``python -m swift.cli.rlhf``, ``.../cli/rlhf.py`` and ``swift.cli.main rlhf``.
    """
    for index, word in enumerate(words):
        rest, before = tuple(words[index + 1 :]), tuple(words[:index])
        subcommand = written(rest[0]) if rest else ""
        if (program := _PROGRAM.fullmatch(written(word))) and _SUBCOMMAND.fullmatch(subcommand):
            return Start(program[1], rest, before)
        if isinstance(word, Unknown) and subcommand == "rlhf" and len(rest) > 1:  # "$SWIFT" rlhf --model ...
            return Start("swift", rest, before)
        if module := _MODULE.fullmatch(written(word)):
            name = "megatron" if module[1] else "swift"
            if module[2] == "main":  # it starts torchrun, as `swift` does
                return Start(name, rest, before[:-1])
            return Start(name, (module[2], *rest), before, is_module=True)
    return None
