"""What a script starts: its ``swift`` commands, and where it starts others that are not read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swift_grpo_ext.doctor.check.unknown import Word, written


@dataclass(frozen=True)
class Command:
    """One ``swift`` or ``megatron`` command with the variables it sees."""

    words: tuple[Word, ...]  # `swift`, the subcommand, its arguments
    environ: Mapping[str, Any] = field(default_factory=dict)  # variables that it sees: text, or Unknown
    unexported: frozenset[str] = frozenset()  # names that the script sets, and the command does not see
    waits: bool = False  # the script goes on only when it has ended
    moved: bool = False  # the script may have changed its folder before it
    set_by: str = ""  # what may set any variable; empty: one that is not in `environ` is not set
    makes_files: bool = False  # A program ran before that may have written any file

    @property
    def subcommand(self) -> str:
        """``rlhf``, ``rollout``, ..."""
        return written(self.words[1]) if len(self.words) > 1 else ""

    @property
    def arguments(self) -> tuple[Word, ...]:
        """The words after the subcommand."""
        return self.words[2:]


@dataclass
class Launch:
    """What a script does, as far as it is read; empty for a command that stands in none."""

    commands: list[Command] = field(default_factory=list)  # the `swift` commands so far
    not_followed: list[str] = field(default_factory=list)  # where others stand, which are not read
    cuts: list[int] = field(default_factory=list)  # lines with options that the command above has lost
    names: set[str] = field(default_factory=set)  # variables that were ever set
    unread: list[str] = field(default_factory=list)  # files that it sources or runs and that are not here
    makes_files: bool = False  # A program ran that may write any file
    text: str = ""  # the script itself

    def all(self, subcommand: str) -> list[Command]:
        """The commands of that name."""
        return [command for command in self.commands if command.subcommand == subcommand]

    def first(self, subcommand: str) -> Command | None:
        """The first command of that name."""
        return next(iter(self.all(subcommand)), None)
