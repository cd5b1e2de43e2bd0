"""Reads a launch script without running it: variables, swift commands, lines that end a command too early."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swift_grpo_ext.doctor.check.launcher import Command
from swift_grpo_ext.doctor.check.script import Shell
from swift_grpo_ext.doctor.check.shell import Variables
from swift_grpo_ext.doctor.check.shell_state import Cut, Found
from swift_grpo_ext.doctor.check.words import PLUGIN

__all__ = ["PLUGIN", "Command", "Cut", "Launch", "read_script"]


@dataclass(frozen=True)
class Launch:
    """What a script starts."""

    commands: tuple[Command, ...]  # the `swift` commands, in order
    found: Found  # everything else that was seen
    windows: bool = False  # lines end in carriage return and line feed
    used: frozenset[str] = frozenset()  # variables that the script itself reads
    refusal: str = ""  # what bash says to its syntax; empty for nothing

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
    glob: Callable[[str, str], list[str]] = lambda folder, pattern: [],
    *,
    path: str = "",
    arguments: Sequence[str] | None = None,
) -> Launch:
    """Read a shell script; nothing is executed.

    A command that a line cuts short is read as it was meant, so that the other checks still see all of it.
    """
    text = _as_shell(text) if re.search(r"(^|/)(\w*\.mk|[Mm]akefile)$", path) else text
    given = None if arguments is None else list(arguments)
    variables = Variables(dict(environ or {}), positional=given, script=path, glob=glob)
    shell = Shell(variables, read)
    shell.run(text)
    found = shell.found
    found.names |= {name for command in found.commands for name in command.environ} - set(environ or {})
    used = frozenset(re.findall(r"\$\{?([A-Za-z_]\w*)", text))
    return Launch(tuple(found.commands), found, "\r\n" in text, used)


def _as_shell(text: str) -> str:
    """A makefile's variables and recipes as a script."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"\$\((\w+)\)", r"${\1}", line)
        assigned = re.fullmatch(r"(?:export\s+)?(\w+)\s*([:?]?)=\s*(.*?)\s*", line)
        if assigned and not line.startswith("\t"):
            name, how, value = assigned.groups()
            lines.append(f'{name}="{f"${{{name}:-{value}}}" if how == "?" else value}"')
        elif line.startswith("\t"):
            goes_on = bool(lines) and lines[-1].endswith("\\")
            lines.append((line if goes_on else line.lstrip("\t@-+")).replace("$$", "$"))
        elif lines and lines[-1].endswith("\\"):
            lines.append(line)
        else:
            lines.append("")
    return "\n".join(lines)


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
