"""Reads a launch script without running it: variables, swift commands, lines that end a command too early."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from swift_grpo_ext.doctor.check.interpreter import State
from swift_grpo_ext.doctor.check.launcher import PLUGIN, Command
from swift_grpo_ext.doctor.check.lines import Cut, joined, simple_commands
from swift_grpo_ext.doctor.check.shell import tokens

__all__ = ["PLUGIN", "Command", "Cut", "Launch", "read_script"]


@dataclass(frozen=True)
class Launch:
    """What a script starts.

    Attributes:
        commands: The ``swift`` commands, in order.
        cuts: Places where a command ends too early.
        windows: Lines end in carriage return and line feed.
        names: Variables that the script sets.
        used: Variables that the script itself reads.
        unread: Files that it sources and that are not here.
        literal: Variables that it sets and puts into single quotes in a command.
        refusal: What bash says to its syntax; empty for nothing.
    """

    commands: tuple[Command, ...]
    cuts: tuple[Cut, ...] = ()
    windows: bool = False
    names: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()
    literal: tuple[str, ...] = ()
    refusal: str = ""

    def all(self, subcommand: str) -> tuple[Command, ...]:
        """The commands of that name."""
        return tuple(command for command in self.commands if command.subcommand == subcommand)

    def first(self, subcommand: str) -> Command | None:
        """The first command of that name."""
        return next(iter(self.all(subcommand)), None)


def read_script(
    text: str,
    environ: Mapping[str, str] | None = None,
    read: Callable[[str], str | None] = lambda name: None,
) -> Launch:
    """Read a shell script of assignments and swift commands; nothing is executed.

    A command that a line cuts short is read as it was meant, so that the other checks still see all of it.

    Args:
        text: The script.
        environ: Variables that it inherits.
        read: Text of a file that it sources; None where it is not here.
    """
    windows = "\r\n" in text
    cuts: list[Cut] = []
    state = State(dict(environ or {}), read)
    for words, end in simple_commands(joined(tokens(text.replace("\r\n", "\n")), cuts)):
        state.run(words, end)
    used = frozenset(re.findall(r"\$\{?([A-Za-z_]\w*)", text))
    names = state.names | {name for command in state.commands for name in command.environ} - set(
        environ or {}
    )
    unread, literal = tuple(state.unread), tuple(dict.fromkeys(state.literal))
    return Launch(tuple(state.commands), tuple(cuts), windows, frozenset(names), used, unread, literal)


def syntax_refusal(text: str) -> str:
    """What bash says to a script that it only reads (``-n``): nothing of it is executed.

    Empty for a script that it takes, for one of another shell, and where there is no bash.
    """
    first, bash = text.split("\n", 1)[0], shutil.which("bash")
    if bash is None or (first.startswith("#!") and not re.search(r"\b(ba|da|k)?sh\b", first)):
        return ""
    command = [bash, "--norc", "--noprofile", "-n", "-s"]
    try:
        done = subprocess.run(
            command, input=text.encode("utf-8", "replace"), capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0].split(": ", 1)[-1] if done.returncode and lines else ""
