"""What one shell knows while it reads a script."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from swift_grpo_ext.doctor.check.marks import is_known, shown
from swift_grpo_ext.doctor.check.script_facts import OF_A_SHELL, Cut, Found
from swift_grpo_ext.doctor.check.shell import Variables

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
