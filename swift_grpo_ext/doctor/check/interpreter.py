"""Follows a script's variables from command to command, without running any."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from swift_grpo_ext.doctor.check.launcher import PLUGIN, Command, launcher_variables, split_at_swift
from swift_grpo_ext.doctor.check.lines import joined, simple_commands
from swift_grpo_ext.doctor.check.shell import Token, expanded, tokens

_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)(\+?)=")
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)")
_KEYWORDS = ("if", "then", "else", "case", "for", "while", "until", "function", "{")
_ELSEWHERE = ("tmux", "screen", "ssh", "docker", "podman", "kubectl", "srun", "sbatch", "pdsh", "daemonize")
_PRINTERS = ("echo", "printf", "cat", "#")
# Files that people source for their shell, not for a run's ranks.
_OF_THE_SHELL = re.compile(r"(^|/)(activate|conda\.sh|\.\w*rc|\.?(bash_)?profile)$")
_DEEPEST = 4


@dataclass
class State:
    """The shell's variables while a script is read.

    Attributes:
        inherited: What the script starts with.
        read: Text of a file that the script sources; None where it is not here.
        own: Variables that it sets.
        arrays: Its arrays.
        exported: Names that commands see.
        names: Names that were ever set.
        commands: The ``swift`` commands so far.
        unread: Files that it sources and that are not here.
        exports_all: After ``set -a``.
        branches: The script has functions, branches or loops, so a command may not be run in its turn.
        literal: Variables that are set, and stand in single quotes in a command, where nothing is filled in.
        depth: Files and strings that this one stands in.
    """

    inherited: dict[str, str]
    read: Callable[[str], str | None]
    own: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    commands: list[Command] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    exports_all: bool = False
    branches: bool = False
    literal: list[str] = field(default_factory=list)
    depth: int = 0

    def run_text(self, text: str) -> None:
        """Follow text in this shell: ``eval``, ``source``."""
        if self.depth >= _DEEPEST:
            return
        self.depth += 1
        for words, end in simple_commands(joined(tokens(text.replace("\r\n", "\n")), [])):
            self.run(words, end)
        self.depth -= 1

    def run(self, words: list[Token], end: str = "&") -> None:
        """Follow one simple command that ends with an operator."""
        words = self._array(words)
        self.branches |= any(word.plain in _KEYWORDS for word in words)
        before: dict[str, str] = {}
        while words and (match := _ASSIGNMENT.match(words[0].plain)):
            value = self._assigned(words.pop(0), {**self.own, **before})
            before[match[1]] = (self.own.get(match[1], "") if match[2] else "") + value
        if not words:
            self._set(before)
            return
        text = [value for word in words for value in expanded(word, self._all(before), self.arrays, _output)]
        if text and text[0] in ("export", "declare", "typeset"):
            self._export(words[1:], exports=text[0] == "export" or "-x" in text)
        elif text[:2] == ["set", "-a"] or text[:3] == ["set", "-o", "allexport"]:
            self.exports_all = True
        elif text and text[0] == "eval":
            self.run_text(" ".join(text[1:]))
        elif len(text) > 1 and text[0] in ("source", "."):
            self._source(text[1])
        elif (inner := _shell_string(text)) is not None:
            child = replace(self, inherited=self._seen(before), own={}, exported=set())
            child.run_text(inner)
        elif text and text[0] not in _PRINTERS:
            self._start(text, before, words, waits=end in ("\n", ";", "&&", "") and not self.branches)

    def _source(self, name: str) -> None:
        content = None if "$" in name else self.read(name)
        if content is not None:
            self.run_text(content)
        elif not _OF_THE_SHELL.search(name):
            self.unread.append(name)

    def _start(self, words: list[str], before: dict[str, str], tokens: list[Token], *, waits: bool) -> None:
        found = split_at_swift(words)
        if found is None:
            return
        quoted = [text for token in tokens for text, quote in token.pieces if quote == "'"]
        names = [name for text in quoted for name in _NAME.findall(text)]
        self.literal += [name for name in names if name in self._all(before)]
        launcher, rest = found
        for word in launcher:  # env A=1 swift ...
            if match := _ASSIGNMENT.match(word):
                before[match[1]] = word[match.end() :]
        before |= launcher_variables(launcher)
        unexported = frozenset(set(self.own) - self.exported - set(before) - set(self.inherited))
        waits = waits and not any(word.rsplit("/", 1)[-1] in _ELSEWHERE for word in launcher)
        self.commands.append(Command(("swift", *rest), self._seen(before), unexported, waits))

    def _seen(self, before: dict[str, str]) -> dict[str, str]:
        return {**self.inherited, **self.own, **before}

    def _all(self, before: dict[str, str]) -> dict[str, str]:
        """What ``$NAME`` is: a variable before a command is not seen by the command's own words."""
        return {**self.inherited, **self.own, **{k: v for k, v in before.items() if k not in self.own}}

    def _array(self, words: list[Token]) -> list[Token]:
        if len(words) < 2 or words[1].kind != "operator":
            return words
        name = words[0].raw.rstrip("+=")
        values = [
            value
            for word in words[2:]
            if word.kind == "word"
            for value in expanded(word, self._all({}), self.arrays, _output)
        ]
        self.arrays[name] = (self.arrays.get(name, []) if "+=" in words[0].raw else []) + values
        return []

    def _assigned(self, word: Token, variables: dict[str, str]) -> str:
        values = expanded(word, {**self.inherited, **variables}, self.arrays, _output)
        return " ".join(values).partition("=")[2]

    def _set(self, values: Mapping[str, str]) -> None:
        self.own.update(values)
        self.names.update(values)
        if self.exports_all:
            self.exported.update(values)

    def _export(self, words: list[Token], *, exports: bool) -> None:
        for word in words:
            match = _ASSIGNMENT.match(word.raw)
            if match:
                self._set({match[1]: self._assigned(word, self.own)})
            if exports:
                self.exported.add(match[1] if match else word.raw)


def _shell_string(words: list[str]) -> str | None:
    """The text of ``bash -c '...'``, behind srun, docker or mpirun too."""
    for index, word in enumerate(words[:-2]):
        following = words[index + 1]
        option = following.startswith("-") and not following.startswith("--") and following.endswith("c")
        if word.rsplit("/", 1)[-1] in ("bash", "sh", "zsh") and option:
            return words[index + 2]
    return None


def _output(command: str) -> str | None:
    words = command.split()
    return PLUGIN if words[:2] == ["swift-grpo-ext", "path"] else None
