"""Follows a script statement by statement: variables, folders, files it writes, and the commands it starts.

Nothing is executed. Functions are followed where they are called; what a branch or a loop sets is known
inside it only.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from tree_sitter import Node

from swift_grpo_ext.doctor.check import commands
from swift_grpo_ext.doctor.check.commands import NAME
from swift_grpo_ext.doctor.check.launch import DETACHED, ELSEWHERE, SHELLS, Cut, Launch, names
from swift_grpo_ext.doctor.check.shell import Variables, text_of
from swift_grpo_ext.doctor.check.words import as_script, base, is_known, opened, unknown

_BRANCHES = ("if_statement", "while_statement", "for_statement", "c_style_for_statement", "case_statement")
_TESTS = re.compile(r"(\[|test\b|grep\b|command\b|which\b|!)")
_REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")


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
    text = as_script(text) if re.search(r"(^|/)(\w*\.mk|[Mm]akefile)$", path) else text
    given = None if arguments is None else list(arguments)
    shell = _Reader(Variables(dict(environ or {}), positional=given, script=path, glob=glob), read)
    shell.run(text)
    found = shell.found
    found.names |= {name for command in found.commands for name in command.environ} - set(environ or {})
    found.windows, found.used = "\r\n" in text, frozenset(re.findall(r"\$\{?([A-Za-z_]\w*)", text))
    return found


class _Reader(commands.Shell):
    def block(self, node: Node) -> None:
        before = self.waits
        for child, following in zip_longest(node.children, node.children[1:]):
            if not self.ended:
                self.waits = before and not (following is not None and following.type == "&")
                self._statement(child)
                self.waits = before

    def _statement(self, node: Node) -> None:
        kind = node.type
        if kind == "command":
            self._command(node, {})
        elif kind in ("variable_assignment", "variable_assignments"):
            for one in [node] if kind == "variable_assignment" else node.named_children:
                self._assign(one)
        elif kind == "declaration_command":
            self._declare(node)
        elif kind == "unset_command":
            for one in node.named_children:
                self.variables.own.pop(text_of(one), None)
        elif kind == "function_definition":
            self.functions[text_of(node.named_children[0])] = node.named_children[-1]
        elif kind in _BRANCHES:
            self._branch(node)
        elif kind == "list":
            self._list(node)
        elif kind == "subshell":
            self.child().block(node)
        elif kind == "redirected_statement":
            self._redirected(node)
        elif kind == "comment":
            commands.left_out(self, node)
        elif kind not in ("test_command", "heredoc_body"):
            self.block(node)

    def _list(self, node: Node) -> None:
        """``a && b``, ``a || b``: b is a branch, but for what follows a command that is meant to succeed."""
        first, sign, second = node.children[0], text_of(node.children[1]), node.children[2:]
        self._statement(first)
        last = first
        while last.type == "list":
            last = last.children[-1]
        tests = last.type == "test_command" or _TESTS.match(text_of(last))
        for child in second:
            if sign == "&&" and not tests:
                self._statement(child)
            else:
                self._apart([child], waits=self.waits)

    def _apart(self, nodes: list[Node], *, waits: bool = False) -> None:
        """Seen, not executed: what these statements change is not known behind them."""
        before, folder, outer = dict(self.variables.own), self.variables.folder, self.waits
        arrays = dict(self.variables.arrays)
        self.waits = waits
        for node in nodes:
            if node.type in ("do_group", "else_clause", "elif_clause", "case_item"):
                self.block(node)
            elif node.is_named and node.type not in ("variable_name", "word", "string"):
                self._statement(node)
            self.ended = False
        self.waits = outer
        for name, value in self.variables.own.items():
            if before.get(name) != value:
                self.variables.own[name] = unknown(f"${name}")
        for name in [name for name, value in self.variables.arrays.items() if arrays.get(name) != value]:
            self.variables.arrays[name] = [opened(f"${{{name}[@]}}")]
        if self.variables.folder != folder:
            self.variables.folder = None

    def _branch(self, node: Node) -> None:
        """``if``, ``for``, ``case``, ``while``; a loop's variable is known if it has but one value."""
        if node.type == "for_statement":
            name, *words = [child for child in node.named_children if child.type != "do_group"]
            values = [value for word in words for value in self.variables.fields(word)]
            self.put(text_of(name), values[0] if len(values) == 1 else unknown(f"${text_of(name)}"))
        self._apart(node.children)

    def _redirected(self, node: Node) -> None:
        """A command with files and here-documents behind it."""
        heredocs = [child for child in node.children if child.type == "heredoc_redirect"]
        inside = [one for child in heredocs for one in child.children]
        files = [child for child in (*node.children, *inside) if child.type == "file_redirect"]
        written = [child for child in files if text_of(child).lstrip("0123456789&").startswith(">")]
        targets = list(map(self._target, written))
        bodies = list(map(self._heredoc, heredocs))
        self.found.made.update(filter(None, targets))
        for child in node.children:
            if child.type == "command":
                words = self._command(child, {})
                if bodies:
                    self._fed(words, bodies[0], targets)
            elif child.type not in _REDIRECTS:
                self._statement(child)

    def _fed(self, words: list[str], body: str, targets: list[str]) -> None:
        """A here-document is a file's text, or a script."""
        name = base("".join(words[:1]))
        if name in ("cat", "tee"):
            for target in [*targets, *(words[1:] if name == "tee" else [])]:
                self.found.texts[target.removeprefix("./")] = body
                self.found.made.add(target)
        elif name in SHELLS or name in DETACHED:
            self.child(elsewhere=bool(ELSEWHERE & names(words))).run(body)

    def _target(self, node: Node) -> str:
        copies = ">&" in text_of(node) or "<&" in text_of(node)
        words = self.variables.fields(node.named_children[-1]) if node.named_children and not copies else []
        return words[0] if words and is_known(words[0]) else ""

    def _heredoc(self, node: Node) -> str:
        start = next((text_of(child) for child in node.children if child.type == "heredoc_start"), "")
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if body is None or start[:1] in "'\"\\":
            return "" if body is None else text_of(body)
        return self.variables.filled(body, body.start_byte, body.end_byte)

    def _assign(self, node: Node, into: dict[str, str] | None = None) -> None:
        """``NAME=value``, ``NAME+=value`` or an array."""
        name, sign = text_of(node.children[0]), text_of(node.children[1])
        value = node.children[2] if len(node.children) > 2 else None
        if value is not None and value.type == "array":
            before = self.variables.arrays.get(name, []) if sign == "+=" else []
            parts = [child for child in value.named_children if child.type != "comment"]
            words = [word for child in parts for word in self.variables.fields(child)]
            self.variables.arrays[name] = before + words
            self.found.names.add(name)
            return
        text = "" if value is None else self.variables.text(value)
        if sign == "+=":
            text = (self.variables.get(name) or "") + text
        if into is None:
            self.put(name, text)
        else:
            into[name] = text

    def _declare(self, node: Node) -> None:
        kind, words = text_of(node.children[0]), node.named_children
        exports = kind == "export" or any(re.fullmatch(r"-\w*x\w*", text_of(word)) for word in words)
        empty = ""
        for word in words:
            if word.type == "variable_assignment":
                self._assign(word)
                empty = text_of(word.children[0]) if len(word.children) == 2 else ""
            name = text_of(word.children[0] if word.type == "variable_assignment" else word)
            if word.type in ("command_substitution", "string", "concatenation"):
                self.sets_anything(self.variables.text(word))
            if exports and NAME.fullmatch(name):
                self.exported.add(name)
            elif empty and word.type != "variable_assignment":
                self._slip(node, empty, name)
                self.put(empty, name)

    def _command(self, node: Node, before: dict[str, str]) -> list[str]:
        """Follow one simple command, and return its words."""
        words: list[str] = []
        for child in node.named_children:
            if child.type == "variable_assignment" and not words:
                self._assign(child, before)
            elif child.type == "command_name":
                inside = child.named_children
                words += self.variables.fields(inside[0]) if inside else [text_of(child)]
            elif child.type == "file_redirect":
                name = self._target(child)
                self.found.made |= {name} if name and ">" in text_of(child) else set()
            elif child.type not in _REDIRECTS:
                words += self.variables.fields(child)
        words = self._as_meant(node, words, before)
        if words:
            commands.start(self, node, words, before)
        else:
            for name, value in before.items():
                self.put(name, value)
        return words

    def _as_meant(self, node: Node, words: list[str], before: dict[str, str]) -> list[str]:
        """Without the blank in ``NAME= value`` and ``NAME = value``."""
        empty = [name for name, value in before.items() if not value]
        if empty and words and re.fullmatch(r"\d[\d,.]*", words[0]):
            self._slip(node, empty[-1], words[0])
            before[empty[-1]] = words[0]
            return words[1:]
        if len(words) > 2 and words[1] == "=" and NAME.fullmatch(words[0]):
            self._slip(node, words[0], words[2])
            self.put(words[0], words[2])
            before[words[0]] = words[2]
            return words[3:]
        return words

    def _slip(self, node: Node, name: str, value: str) -> None:
        """A blank beside ``=``: taken as it was meant, so that the other checks see it."""
        self.found.cuts.append(Cut(node.start_point.row + 1, "assignment", f"{name}={value}"))
