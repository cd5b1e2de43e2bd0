"""Follows a script statement by statement: variables, folders, files it writes, and the commands it starts.

Nothing is executed. Functions are followed where they are called; what a branch or a loop sets is known
inside it only.
"""

from __future__ import annotations

import re

from tree_sitter import Node

from swift_grpo_ext.doctor.check import launcher, shell_commands
from swift_grpo_ext.doctor.check.shell import parsed, text_of
from swift_grpo_ext.doctor.check.shell_state import DEEPEST, ShellState
from swift_grpo_ext.doctor.check.words import is_known, is_open, opened, unknown

_BRANCHES = ("if_statement", "while_statement", "for_statement", "c_style_for_statement", "case_statement")
_REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")
_OPTION = re.compile(r"[-–—]+[A-Za-z]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
_FETCHES = re.compile(r"\$\([^()]*\b(modelscope|huggingface-cli|hf|git clone|wget|curl)\b")


class Shell(ShellState):
    """One shell that reads a script, statement by statement."""

    def run(self, text: str) -> None:
        """Follow text in this shell."""
        if self.depth > DEEPEST:
            return
        self.found.makes_files |= bool(_FETCHES.search(text))
        self.block(parsed(text))
        for name in [name for name in self.functions if name not in self.called]:
            self.call(name, None)  # started in a way that is not seen

    def block(self, node: Node) -> None:
        """Follow the statements of a node."""
        for index, child in enumerate(node.children):
            if self.ended:
                return
            following = node.children[index + 1] if index + 1 < len(node.children) else None
            before = self.waits
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
            shell_commands.left_out(self, node)
        elif kind not in ("test_command", "heredoc_body"):
            self.block(node)

    def _list(self, node: Node) -> None:
        """``a && b``, ``a || b``: b is a branch, but for what follows a command that is meant to succeed."""
        first, sign, second = node.children[0], text_of(node.children[1]), node.children[2:]
        self._statement(first)
        last = first
        while last.type == "list":
            last = last.children[-1]
        tests = last.type == "test_command" or re.match(
            r"(\[|test\b|grep\b|command\b|which\b|!)", text_of(last)
        )
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
        """``if``, ``for``, ``case``, ``while``."""
        if node.type == "for_statement":
            self.put(text_of(node.named_children[0]), self._of_loop(node))
        self._apart(node.children)

    def _of_loop(self, node: Node) -> str:
        """The value of a loop's variable, if there is but one."""
        words = [child for child in node.named_children[1:] if child.type != "do_group"]
        values = [value for word in words for value in self.variables.fields(word)]
        return values[0] if len(values) == 1 else unknown(f"${text_of(node.named_children[0])}")

    def call(self, name: str, arguments: list[str] | None) -> None:
        """Follow a function's body with what it is called with; None if that is not known."""
        if self.depth > DEEPEST:
            return
        known = arguments is not None and not any(is_open(word) for word in arguments)
        before, ended, waits = self.variables.positional, self.ended, self.waits
        self.called.add(name)
        self.variables.positional = arguments if known else None
        self.depth += 1
        self.waits = False
        self.block(self.functions[name])
        self.depth -= 1
        self.variables.positional, self.ended, self.waits = before, ended, waits

    def _redirected(self, node: Node) -> None:
        """A command with files and here-documents behind it."""
        inside = [
            one for child in node.children if child.type == "heredoc_redirect" for one in child.children
        ]
        files = [child for child in (*node.children, *inside) if child.type == "file_redirect"]
        targets = [
            self._target(child) for child in files if text_of(child).lstrip("0123456789&").startswith(">")
        ]
        bodies = [self._heredoc(child) for child in node.children if child.type == "heredoc_redirect"]
        for name in filter(None, targets):
            self.found.made.add(name)
        body = bodies[0] if bodies else None
        for child in node.children:
            if child.type == "command":
                words = self._command(child, {})
                if body is not None:
                    self._fed(words, body, targets)
            elif child.type not in _REDIRECTS:
                self._statement(child)

    def _fed(self, words: list[str], body: str, targets: list[str]) -> None:
        """A here-document is a file's text, or a script."""
        name = words[0].rsplit("/", 1)[-1] if words else ""
        if name in ("cat", "tee"):
            for target in [*targets, *(words[1:] if name == "tee" else [])]:
                self.found.texts[target.removeprefix("./")] = body
                self.found.made.add(target)
        elif name in _SHELLS or launcher.is_launcher(name):
            self.child(elsewhere=self.elsewhere or launcher.is_elsewhere(words)).run(body)

    def _target(self, node: Node) -> str:
        copies = ">&" in text_of(node) or "<&" in text_of(node)
        words = self.variables.fields(node.named_children[-1]) if node.named_children and not copies else []
        return words[0] if words and is_known(words[0]) else ""

    def _heredoc(self, node: Node) -> str:
        start = next((text_of(child) for child in node.children if child.type == "heredoc_start"), "")
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if body is None:
            return ""
        return (
            text_of(body)
            if start[:1] in "'\"\\"
            else self.variables.filled(body, body.start_byte, body.end_byte)
        )

    def _assign(self, node: Node, into: dict[str, str] | None = None) -> None:
        """``NAME=value``, ``NAME+=value`` or an array."""
        name, sign = text_of(node.children[0]), text_of(node.children[1])
        value = node.children[2] if len(node.children) > 2 else None
        if value is not None and value.type == "array":
            words = [
                word
                for child in value.named_children
                if child.type != "comment"
                for word in self.variables.fields(child)
            ]
            self.variables.arrays[name] = (
                self.variables.arrays.get(name, []) if sign == "+=" else []
            ) + words
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
            if exports and _NAME.fullmatch(name):
                self.exported.add(name)
            elif empty and word.type != "variable_assignment":
                self.slip(node, empty, name)

    def _command(self, node: Node, before: dict[str, str]) -> list[str]:
        """Follow one simple command, and return its words."""
        words: list[str] = []
        for child in node.named_children:
            if child.type == "variable_assignment" and not words:
                self._assign(child, before)
            elif child.type == "command_name":
                words += (
                    self.variables.fields(child.named_children[0])
                    if child.named_children
                    else [text_of(child)]
                )
            elif child.type == "file_redirect":
                name = self._target(child)
                self.found.made |= {name} if name and ">" in text_of(child) else set()
            elif child.type not in _REDIRECTS:
                words += self.variables.fields(child)
        words = shell_commands.as_meant(self, node, words, before)
        if words:
            shell_commands.start(self, node, words, before)
        elif before:
            for name, value in before.items():
                self.put(name, value)
        return words
