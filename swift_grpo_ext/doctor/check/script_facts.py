"""What is seen in a script beside its variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from swift_grpo_ext.doctor.check.launcher import Command

# Files that people source for their shell, not for a run's ranks.
OF_THE_SHELL = re.compile(
    r"(^|/)(activate|conda\.sh|\.\w*rc|\.?(bash_)?profile|set_env\.sh|modules?\.sh|nvm\.sh)$"
)
OF_A_SHELL = re.compile(r"\b(conda|mamba|micromamba|pyenv|ssh-agent|modulecmd|brew|direnv|starship)\b")
_HARMLESS = """
    : [ [[ alias break cat cd conda continue date df du echo env exit export false free fuser grep head
    hostname hostnamectl id kill killall ls lscpu lsof mamba mkdir modprobe module nc netstat npu-smi
    nvidia-smi pip pip3 pkill popd printf ps pushd ray return rm scontrol set shopt sleep ss swanlab
    swift swift-grpo-ext sync tail tee test time trap true ulimit umask uname unset wait wandb wc which
    whoami
    """
WRITE_NOTHING = frozenset(_HARMLESS.split())  # commands that write no file that a run reads


@dataclass(frozen=True)
class Cut:
    """A place where the shell reads something else than was meant."""

    line: int  # its line, from 1
    # `comment`, `space`, `blank` or `backslash` (a missing one) where a command ends too early;
    # `assignment` for a blank beside `=`
    reason: str
    text: str = ""  # the comment, or the assignment as it was meant


@dataclass
class Found:
    """What a script does, as far as it is read."""

    commands: list[Command] = field(default_factory=list)  # the `swift` commands so far
    cuts: list[Cut] = field(default_factory=list)  # where the shell reads something else than was meant
    names: set[str] = field(default_factory=set)  # variables that were ever set
    unread: list[str] = field(default_factory=list)  # files that it sources or runs and that are not here
    # variables that are set, and stand in single quotes in a command
    literal: list[str] = field(default_factory=list)
    made: set[str] = field(default_factory=set)  # files that it writes
    texts: dict[str, str] = field(default_factory=dict)  # content of those that are written out in it
    makes_files: bool = False  # A program ran that may write any file


def cut_between(previous: Node, node: Node) -> Cut:
    """Why the shell ends a command between two nodes."""
    whole = node
    while whole.parent is not None:
        whole = whole.parent
    between = (whole.text or b"")[previous.end_byte : node.start_byte].decode("utf-8", "replace")
    line = previous.end_point.row + 1
    if "#" in between:
        comment = between[between.index("#") :].splitlines()[0]
        return Cut(line + between[: between.index("#")].count("\n"), "comment", comment)
    if re.search(r"\\[ \t]+\n", between):
        return Cut(line, "space")
    blank = re.search(r"\n[ \t]*\n", between)
    return Cut(line + 1, "blank") if blank else Cut(line, "backslash")
