"""What a script starts: its ``swift`` commands, and where the shell reads something else than was meant."""

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
    text: str = ""  # the script itself
    refusal: str = ""  # what bash says to its syntax; empty for nothing

    @property
    def windows(self) -> bool:
        """Lines end in carriage return and line feed."""
        return "\r\n" in self.text

    def all(self, subcommand: str) -> list[Command]:
        """The commands of that name."""
        return [command for command in self.commands if command.subcommand == subcommand]

    def first(self, subcommand: str) -> Command | None:
        """The first command of that name."""
        return next(iter(self.all(subcommand)), None)
