"""Follows a script statement by statement: its variables, and the ``swift`` commands that it starts.

Nothing is executed. Functions, other files, other machines and here-documents are not followed; what a
branch or a loop sets is not known behind it, and neither is the folder behind a ``cd``.
"""

import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tree_sitter import Node

from swift_grpo_ext.doctor.check.launch import launchers
from swift_grpo_ext.doctor.check.launch.commands import Command, Launch
from swift_grpo_ext.doctor.check.launch.shell import Value, Variables, parsed, text_of
from swift_grpo_ext.doctor.check.unknown import Unknown, Word, joined, written

_NAME = re.compile(r"[A-Za-z_]\w*")
# Variables that a text sets, but for the local ones of a function.
_SETS = re.compile(r"(?<!local)(?:^|[\s;{(&])([A-Za-z_]\w*)(?:\[\w+\])?(?:\+?=|\s+in\b)", re.MULTILINE)
_OPTION = re.compile(r"[-–—]+[A-Za-z]")
_PARTS = (
    *("program", "do_group", "compound_statement", "else_clause", "elif_clause", "case_item"),
    *("pipeline", "negated_command", "variable_assignments"),
)
_BRANCHES = (
    *("if_statement", "while_statement", "for_statement", "c_style_for_statement", "case_statement"),
    *("subshell", "list"),
)
# Files that people source for their shell, not for a run's ranks; and programs that print variables for it.
_OF_THE_SHELL = re.compile(
    r"(^|/)(activate|conda\.sh|\.\w*rc|\.?(bash_)?profile|set_env\.sh|modules?\.sh|nvm\.sh)$"
    r"|\b(conda|mamba|micromamba|pyenv|ssh-agent|modulecmd|brew|direnv|starship)\b"
)
_FETCHES = re.compile(r"\$\([^()]*\b(modelscope|huggingface-cli|hf|git clone|wget|curl)\b")
# Commands that write no file that a run reads.
_WRITE_NOTHING = frozenset(
    """
    : [ [[ alias break cat cd conda continue date df du echo env exit export false free fuser grep head
    hostname hostnamectl id kill killall ls lscpu lsof mamba mkdir modprobe module nc netstat npu-smi
    nvidia-smi pip pip3 pkill popd printf ps pushd ray return rm scontrol set shopt sleep ss swanlab
    swift swift-grpo-ext sync tail test time touch trap true ulimit umask uname unset wait wandb wc which
    whoami
    """.split()  # noqa: SIM905
)


def read_script(text: str, environ: Mapping[str, str] | None = None) -> Launch:
    """Read a shell script that is started with these variables.

    A command that a line cuts short is read as it was meant, so that the other checks still see all of it.
    """
    reader = _Reader(environ or {}, text)
    tree = parsed(text)
    reader.block([tree])
    if tree.has_error:
        reader.launch.not_followed.append("lines that are not plain bash (`bash -n` may name them)")
    return reader.launch


class _Reader:
    """What is known of a script at one of its statements."""

    def __init__(self, environ: Mapping[str, str], text: str) -> None:
        self.variables = Variables(environ)
        self.launch = Launch(text=text, makes_files=bool(_FETCHES.search(text)))
        self.exported = set(environ)
        self.exports_all = "set -a" in text
        self.moved = False
        self.after_swift = False  # the last command was one of `swift`

    def block(self, nodes: Sequence[Node]) -> None:
        """Follow statements, up to an ``exit``."""
        for node in nodes:
            if node.type == "command" and re.match(r"exit\b", text_of(node)):
                return
            self._statement(node)

    def _statement(self, node: Node) -> None:
        match node.type:
            case "command":
                self._command(node)
            case "variable_assignment":
                self._assign(node)
            case "declaration_command":
                self._declare(node)
            case "unset_command":
                for child in node.named_children:
                    self.variables.values.pop(text_of(child), None)
            case "function_definition" | "heredoc_redirect":
                self._not_followed(node, "a function" if node.type.startswith("f") else "a here-document")
                self._forget(_SETS.findall(text_of(node)))
            case "redirected_statement":  # a log of a training is not read by another
                self.launch.makes_files |= "swift" not in text_of(node.children[0])
                self.block(node.children)
            case kind if kind in _PARTS:
                self.block(node.children)
            case kind if kind in _BRANCHES:
                self._forget(_SETS.findall(text_of(node)))
                self.block(node.children)
                self._forget(_SETS.findall(text_of(node)))

    def _forget(self, names: Iterable[str]) -> None:
        """Variables that are not known from here on."""
        for name in names:
            is_array = isinstance(self.variables.values.get(name), tuple)
            any_words = (Unknown(f"${{{name}[@]}}", many=True),)
            self._put(name, any_words if is_array else Unknown(f"${name}"))

    def _not_followed(self, node: Node, place: str, text: str = "") -> None:
        """A `swift rlhf` command that stands where it is not read."""
        if launchers.INNER.search(text or text_of(node)):
            self.launch.not_followed.append(f"{place} (line {node.start_point.row + 1})")

    def _put(self, name: str, value: Value) -> None:
        """Set a variable."""
        self.variables.values[name] = value
        self.launch.names.add(name)
        if self.exports_all:
            self.exported.add(name)

    def _assign(self, node: Node) -> str:
        """``NAME=value``, ``NAME+=value`` or an array; returns the name."""
        name = text_of(node.children[0])
        before = self.variables.values.get(name) if text_of(node.children[1]) == "+=" else None
        value = next(iter(node.children[2:]), None)
        if value is not None and value.type == "array":
            first = before if isinstance(before, tuple) else ()
            self._put(name, (*first, *self._words(value.named_children)))
        else:
            text = self.variables.value(value)
            self._put(name, text if before is None or isinstance(before, tuple) else joined((before, text)))
        return name

    def _words(self, nodes: Sequence[Node]) -> list[Word]:
        return [word for node in nodes if node.type != "comment" for word in self.variables.words(node)]

    def _declare(self, node: Node) -> None:
        """``export``, ``declare``, ``readonly``: the variables that it sets, and what it exports."""
        exports = re.match(r"export\b|(declare|typeset) -\w*x", text_of(node)) is not None
        for child in node.named_children:
            name = self._assign(child) if child.type == "variable_assignment" else text_of(child)
            if child.type in ("command_substitution", "string", "concatenation"):
                self._sets_anything(self.variables.value(child))
            if exports and _NAME.fullmatch(name):
                self.exported.add(name)

    def _sets_anything(self, source: Word) -> None:
        """Variables that a file or a command sets: ``source ranks.env``, ``export $(cat .env)``."""
        if isinstance(source, Unknown) and not _OF_THE_SHELL.search(source.name):
            self.launch.unread.append(source.name)
            self.variables.complete = False

    def _command(self, node: Node) -> None:
        """Follow one simple command."""
        own: dict[str, Word] = {}  # variables before it
        words: list[Word] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                value = next(iter(child.children[2:]), None)
                own[text_of(child.children[0])] = self.variables.value(value)
            elif "redirect" not in child.type:
                words += self._words(child.named_children if child.type == "command_name" else [child])
        if not words:
            return
        swift = launchers.split_at_swift(words)
        if swift:
            self._swift(node, *swift, own)
        elif self.after_swift and _OPTION.match(written(words[0])):  # options that the command has lost
            last = self.launch.commands[-1]
            self.launch.commands[-1] = replace(last, words=(*last.words, *words))
            self.launch.cuts.append(node.start_point.row + 1)
        else:
            self.after_swift = False
            self._other(node, words)

    def _other(self, node: Node, words: list[Word]) -> None:
        """Follow a command of another program, which may change variables, folder and files."""
        texts = list(map(written, words))
        name = os.path.basename(texts[0])
        if name in ("source", "."):
            self._sets_anything(Unknown(texts[-1]))
        elif name == "eval" or texts[1:2] == ["="]:  # a blank beside the sign of an assignment
            self._sets_anything(joined(tuple(words[1:])) if name == "eval" else Unknown(" ".join(texts)))
        elif script := launchers.script_of(texts):
            self.launch.not_followed.append(f"{script} (line {node.start_point.row + 1})")
        self.moved |= name in ("cd", "pushd") and texts[1:2] != ["."]
        self.launch.makes_files |= name not in (*_WRITE_NOTHING, "source", ".", "eval")
        self._forget(filter(_NAME.fullmatch, texts[1:] if name in _SETTERS else ()))
        self._not_followed(node, f"the words of {name}", " ".join(texts))

    def _swift(self, node: Node, started: list[Word], rest: list[Word], own: dict[str, Word]) -> None:
        """A command of ms-swift."""
        programs = launchers.names(started)
        if programs & launchers.ELSEWHERE or launchers.looks_for_a_file(started):
            place = next(iter(programs & launchers.ELSEWHERE), written(started[0]))
            self._not_followed(node, place)
            return
        values = self.variables.values
        seen = {name: self.variables.plain(name) for name in values if name in self.exported}
        own |= launchers.variables(started)
        self.launch.names.update(own)
        environ = {**seen, **own}
        known = [name for name, value in values.items() if not isinstance(value, Unknown)]
        more = [Unknown(name, many=True) for name in sorted(programs & {"xargs", "parallel"})]
        command = Command(
            ("megatron" if "megatron" in programs else "swift", *rest, *more),
            environ,
            unexported=frozenset(name for name in known if name not in environ),
            waits=_waits(node) and not programs & launchers.DETACHED,
            moved=self.moved,
            set_by="" if self.variables.complete else " and ".join(self.launch.unread),
            makes_files=self.launch.makes_files,
        )
        self.launch.commands.append(command)
        self.after_swift = True


_SETTERS = ("read", "mapfile", "readarray", "getopts", "printf")


def _waits(node: Node) -> bool:
    """Whether the script goes on only when a command has ended."""
    place: Node | None = node
    while place is not None:
        following = place.next_sibling
        if place.type in _BRANCHES[:-1] or (following is not None and following.type == "&"):
            return False
        place = place.parent
    return True
