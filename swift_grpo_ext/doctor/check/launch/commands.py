"""What a script starts: its ``swift`` commands, and the ranks that the words before them say."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swift_grpo_ext.doctor.check.unknown import Unknown, Word, written

_SUBCOMMAND = re.compile(
    "pt|sft|infer|merge[-_]lora|web[-_]ui|deploy|rollout|rlhf|grpo|sample|export|eval|app"
)
_PROGRAM = re.compile(r"(?:.*/)?(swift|megatron)")
_MODULE = re.compile(r"(?:.*\W)?(?:swift[./]cli[./]|cli/(?=.*\.py$))(_megatron[./])?(\w+?)(?:\.py)?")
# What may stand before a command of ms-swift: programs that start here what follows them, and variables.
_STARTS = re.compile(
    r"(?:(?:\S*/)?(?:env|nohup|time|exec|eval|command|sudo|numactl|parallel|taskset|nice|ionice|timeout|stdbuf"
    r"|setsid|python[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|conda|mamba|micromamba|uv|poetry|ray"
    r"|xargs|srun)(?= |$)|\$|[A-Z_]+=|[\d,]+(?= |$)|$)(?!.*\b(?:docker|kubectl|singularity|apptainer)\b)",
    re.DOTALL,
)
_OF_A_FILE = re.compile(r".*\b(?:torchrun|deepspeed)\b.*|.*-m", re.DOTALL)  # they look for a file `swift`
_TORCH = re.compile(r".*\b(?:torchrun|torch\.distributed\.(?:run|launch))\b", re.DOTALL)
_OTHERS = re.compile(r".*\b(?:accelerate|deepspeed|mpirun|mpiexec)\b", re.DOTALL)
_SAID = re.compile(
    r"--?(?:(nproc[-_]per[-_]node|num[-_]gpus)|(nnodes|num[-_]nodes|num[-_]machines)|(num[-_]processes))"
    r"[= ]+(\S+)|(?<!\S)(?:-x )?([A-Z_]+)=(\S*)"
)


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
    cuts: list[int] = field(default_factory=list)  # lines with options that the command above has lost
    names: set[str] = field(default_factory=set)  # variables that were ever set
    text: str = ""  # the script itself

    def all(self, *subcommands: str) -> list[Command]:
        """The commands of these names."""
        return [command for command in self.commands if command.subcommand in subcommands]


def command_of(words: Sequence[Word]) -> Command | None:
    """The command of ms-swift that these words start, with what its launcher sets; None where they do not.

    Known are ``swift rlhf``, ``python -m swift.cli.rlhf``, ``.../cli/rlhf.py`` and ``swift.cli.main rlhf``,
    behind programs that start what follows them on this machine.
    """
    for index, word in enumerate(words):
        rest, before = tuple(words[index + 1 :]), " ".join(map(written, words[:index]))
        program, module = _PROGRAM.fullmatch(written(word)), _MODULE.fullmatch(written(word))
        subcommand = written(rest[0]) if rest else ""
        is_named = isinstance(word, Unknown) and subcommand == "rlhf"  # "$SWIFT" rlhf --model ...
        of_megatron = bool(program[1] == "megatron" if program else module and module[1])
        is_single = False
        if module and module[2] != "main":  # `main` starts torchrun, as `swift` does
            rest = (module[2], *rest)
            is_single = not _TORCH.match(before) and not _OTHERS.match(before) and "srun" not in before
        elif not module and (not (program or is_named) or not _SUBCOMMAND.fullmatch(subcommand)):
            continue
        elif not module and _OF_A_FILE.fullmatch(before):
            return None
        more = [Unknown("xargs", many=True)] if re.match(r"(xargs|parallel)\b", before) else []
        words = ("megatron" if of_megatron else "swift", *rest, *more)
        found = Command(words, _variables(before), waits="srun" not in before, is_single=is_single)
        return found if _STARTS.match(before) else None
    return None


def _variables(before: str) -> dict[str, Word]:
    """Variables that a launcher's words set: ``env A=1``, ranks and nodes of torchrun."""
    environ: dict[str, Word] = {}
    for ranks, nodes, world, number, name, value in _SAID.findall(before):
        name = "NPROC_PER_NODE" if ranks else "NNODES" if nodes else "WORLD_SIZE" if world else name
        text = number or value
        environ[name] = Unknown(text) if re.search("[$`]", text) else text
    if world_size := environ.pop("WORLD_SIZE", ""):
        numbers = (written(world_size), written(environ.get("NNODES", "1")))
        counted = all(number.isdecimal() for number in numbers)
        environ["NPROC_PER_NODE"] = Unknown("--num_processes")
        if counted:
            environ["NPROC_PER_NODE"] = str(max(1, int(numbers[0]) // max(1, int(numbers[1]))))
    # What torchrun is not told is 1, the others read a file or take all GPUs; an argument that is not known
    # may be any number.
    if _TORCH.match(before) or _OTHERS.match(before):
        is_open = "$" in before
        environ.setdefault("NPROC_PER_NODE", Unknown("ranks") if is_open or _OTHERS.match(before) else "1")
        environ.setdefault("NNODES", Unknown("nodes") if is_open else "1")
    return environ
