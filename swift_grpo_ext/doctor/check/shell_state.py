"""What one shell knows while it reads a script."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from swift_grpo_ext.doctor.check.launcher import Command
from swift_grpo_ext.doctor.check.shell import Variables
from swift_grpo_ext.doctor.check.words import is_known, shown

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


DEEPEST = 8  # shells and functions within each other


@dataclass
class ShellState(ABC):
    """One shell that reads a script."""

    variables: Variables  # its variables
    read: Callable[[str], str | None]  # text of a file; None where it is not here
    found: Found = field(default_factory=Found)  # what was found so far, shared by all shells of a script
    functions: dict[str, Node] = field(default_factory=dict)  # bodies by name
    exported: set[str] = field(default_factory=set)  # names that commands see
    exports_all: bool = False  # after `set -a`
    # it goes on only when a command has ended: it is not in the background, nor in a branch
    waits: bool = True
    elsewhere: bool = False  # it runs on another machine or in a container, with other files
    depth: int = 0  # shells and functions around it
    called: set[str] = field(default_factory=set)  # functions that were followed
    ended: bool = False  # after `exit`
    previous: Node | None = None  # the last `swift` command

    @abstractmethod
    def run(self, text: str) -> None:
        """Follow text in this shell."""

    @abstractmethod
    def block(self, node: Node) -> None:
        """Follow the statements of a node."""

    @abstractmethod
    def call(self, name: str, arguments: list[str] | None) -> None:
        """Follow a function's body."""

    def put(self, name: str, value: str) -> None:
        """Set a variable."""
        self.variables.own[name] = value
        self.found.names.add(name)
        if self.exports_all:
            self.exported.add(name)

    def sets_anything(self, text: str) -> None:
        """Variables that a command prints: ``export $(cat .env)``, ``eval "$(...)"``."""
        if not is_known(text) and not OF_A_SHELL.search(text):
            self.found.unread.append(shown(text))
            self.variables.complete = False

    def slip(self, node: Node, name: str, value: str) -> None:
        """A blank beside ``=``: taken as it was meant, so that the other checks see it."""
        self.found.cuts.append(Cut(node.start_point.row + 1, "assignment", f"{name}={value}"))
        self.put(name, value)

    def seen(self, before: dict[str, str], elsewhere: bool) -> dict[str, str]:
        """The variables that a command sees, or was meant to see."""
        return dict(before) if elsewhere else {**self.variables.inherited, **self.variables.own, **before}

    def child(self, **changes: object) -> ShellState:
        """A subshell: it sees everything, and nothing that it sets is seen outside."""
        inner = replace(self.variables, own=dict(self.variables.own), arrays=dict(self.variables.arrays))
        shell = replace(self, variables=inner, exported=set(self.exported), depth=self.depth + 1, ended=False)
        for name, value in changes.items():
            setattr(shell, name, value)
        return shell
