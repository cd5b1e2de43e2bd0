"""Reads a launch script without running it: variables, swift commands, comments in the wrong place."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

_ASSIGNMENT = re.compile(r"^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}]*))?\}|\$([A-Za-z_][A-Za-z0-9_]*)")
# Stands for the output of $(swift-grpo-ext path); other substitutions stay as they are.
PLUGIN = "<swift-grpo-ext plugin>"
_PATH_COMMAND = re.compile(r"\"?\$\(swift-grpo-ext path(?: \w+)?\)\"?")


@dataclass(frozen=True)
class Command:
    """One ``swift`` command with the variables it sees."""

    words: tuple[str, ...]
    environ: Mapping[str, str]

    @property
    def subcommand(self) -> str:
        """``rlhf``, ``rollout``, ..."""
        return self.words[1] if len(self.words) > 1 else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after the subcommand."""
        return self.words[2:]


@dataclass(frozen=True)
class Launch:
    """What a script starts.

    Attributes:
        commands: The ``swift`` commands, in order.
        cut: (line number, text) of comments that end a command which its backslashes meant to go on.
    """

    commands: tuple[Command, ...]
    cut: tuple[tuple[int, str], ...] = field(default=())

    def first(self, subcommand: str) -> Command | None:
        """The first command of that name."""
        return next((command for command in self.commands if command.subcommand == subcommand), None)


def read_script(text: str, environ: Mapping[str, str] | None = None) -> Launch:
    """Read a shell script of assignments and swift commands; nothing is executed.

    A command that a comment cuts short is read as it was meant, so that the other checks still see all of it.
    """
    lines, cut = _joined(text)
    variables = dict(environ or {})
    commands = []
    for line in lines:
        try:
            words = shlex.split(_PATH_COMMAND.sub(f"'{PLUGIN}'", line), comments=True)
        except ValueError:
            continue
        local = dict(variables)
        while words and (match := _ASSIGNMENT.match(words[0])):
            local[match[1]] = _expanded(match[2], local)
            words = words[1:]
        if not words or words[0] == "export":
            variables = local | _exports(words[1:], local)
        elif "swift" in (words[0].rsplit("/", 1)[-1], *words[:1]):
            expanded = tuple(_expanded(word, local) for word in words)
            commands.append(Command(("swift", *expanded[1:]), local))
    return Launch(tuple(commands), tuple(cut))


def _joined(text: str) -> tuple[list[str], list[tuple[int, str]]]:
    """Lines with their continuations, and the comments that stand inside a continued command."""
    joined: list[str] = []
    cut: list[tuple[int, str]] = []
    current = ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if current and line.startswith("#"):
            cut.append((number, line))
            continue
        behind = re.search(r"\\\s+#|\s#.*\\\s*$", raw) if not line.startswith("#") else None
        if behind:
            cut.append((number, line))
            line = re.sub(r"\s#.*$", "", line).rstrip().rstrip("\\") + "\\"
        goes_on = line.endswith("\\")
        current += (line[:-1] if goes_on else line) + " "
        if not goes_on:
            joined.append(current)
            current = ""
    return [*joined, current] if current else joined, cut


def _exports(words: list[str], variables: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for word in words:
        if match := _ASSIGNMENT.match(word):
            found[match[1]] = _expanded(match[2], variables)
    return found


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return variables.get(match[1] or match[3], match[2] or match[0])

    return _VARIABLE.sub(value, word)
