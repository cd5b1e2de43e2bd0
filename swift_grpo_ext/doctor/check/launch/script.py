"""Follows a script statement by statement: its variables, and the ``swift`` commands that it starts.

Nothing is executed. Functions, other files, other machines and here-documents are not followed; what a
branch or a loop sets is not known behind it.
"""

import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tree_sitter import Node

from swift_grpo_ext.doctor.check.launch import commands
from swift_grpo_ext.doctor.check.launch.commands import Command, Cut, Launch
from swift_grpo_ext.doctor.check.launch.shell import Variables, parsed, text_of
from swift_grpo_ext.doctor.check.unknown import Unknown, Word, joined, written

_NAME = re.compile(r"[A-Za-z_]\w*")
# Variables that the text of a function sets, but for its local ones.
_SETS = re.compile(r"(?:^|[;{])\s*(?:export\s+)?([A-Za-z_]\w*)\+?=", re.MULTILINE)
_OPTION = re.compile(r"[-–—]+[A-Za-z]")
_PARTS = (
    *("program", "do_group", "compound_statement", "else_clause", "elif_clause", "case_item"),
    *("pipeline", "negated_command", "variable_assignments"),
)
_BRANCHES = (
    *("if_statement", "while_statement", "for_statement", "c_style_for_statement", "case_statement"),
    "subshell",
)
_REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")
_TO_FILE = re.compile(r"&?>{1,2}\s*(?!/dev/null|&)\S|\d?>{1,2}\s*(?!/dev/null|&)\S")
# A blank of a web page beside an option.
_INVISIBLE = re.compile("--[\\w-]+([{0}])|([{0}])-".format("\u00a0\u200b\u200c\u200d\u2060\u3000\ufeff"))
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
    inherited = environ or {}
    reader = _Reader(inherited)
    reader.launch.windows = "\r\n" in text
    reader.launch.makes_files = bool(_FETCHES.search(text))
    reader.block([parsed(text)])
    result = reader.launch
    for number, line in enumerate(text.splitlines(), start=1):
        invisible = _INVISIBLE.search(line)
        if invisible:
            sign = ord(invisible[1] or invisible[2])
            result.cuts.append(Cut(number, "invisible", f"U+{sign:04X}"))
    result.names |= {name for command in result.commands for name in command.environ} - set(inherited)
    result.used = frozenset(re.findall(r"\$\{?([A-Za-z_]\w*)", text))
    return result


class _Reader:
    """What is known of a script at one of its statements."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.variables = Variables(environ)
        self.launch = Launch()
        self.exported = set(environ)
        self.exports_all = False  # after `set -a`
        self.folder: str | None = ""  # relative to where the script was started; None where it is not known
        self.previous: Node | None = None  # the last `swift` command

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
                self.variables.unset(map(text_of, node.named_children))
            case "function_definition":
                self._not_followed(node, "a function")
                self._forget(_SETS.findall(text_of(node)))
            case "list":  # `a && b`, `a || b`: b is a branch
                self._statement(node.children[0])
                self._branch(node.children[1:])
            case "redirected_statement" | "heredoc_redirect":
                self._redirected(node)
            case kind if kind in _BRANCHES:
                self._branch(node.children)
            case kind if kind in _PARTS:
                self.block(node.children)

    def _branch(self, nodes: Sequence[Node]) -> None:
        """Follow statements that may not be executed: what they change is not known behind them."""
        values = dict(self.variables.values)
        arrays = {name: list(words) for name, words in self.variables.arrays.items()}
        folder = self.folder
        if nodes[0].type == "for":
            self._forget([text_of(nodes[1])])
        self.block(nodes)
        self._forget(name for name, value in self.variables.values.items() if values.get(name) is not value)
        for name in [name for name, words in self.variables.arrays.items() if arrays.get(name) != words]:
            self.variables.arrays[name] = [Unknown(f"${{{name}[@]}}", many=True)]
        if self.folder != folder:
            self.folder = None

    def _forget(self, names: Iterable[str]) -> None:
        """Variables that are not known from here on."""
        for name in list(names):
            self._put(name, Unknown(f"${name}"))

    def _not_followed(self, node: Node, place: str, text: str = "") -> None:
        """A `swift rlhf` command that stands where it is not read."""
        if commands.INNER.search(text or text_of(node)):
            self.launch.not_followed.append(f"{place} (line {node.start_point.row + 1})")

    def _redirected(self, node: Node) -> None:
        """A command with files and here-documents behind it."""
        started = len(self.launch.commands)
        for child in node.children:
            if child.type == "heredoc_redirect":
                self._not_followed(child, "a here-document")
            self._statement(child)
        redirects = [text_of(child) for child in node.children if child.type == "file_redirect"]
        if started == len(self.launch.commands):
            self.launch.makes_files |= any(map(_TO_FILE.match, redirects))

    def _put(self, name: str, value: Word) -> None:
        """Set a variable."""
        self.variables.values[name] = value
        self.launch.names.add(name)
        if self.exports_all:
            self.exported.add(name)

    def _assign(self, node: Node) -> None:
        """``NAME=value``, ``NAME+=value`` or an array."""
        name = text_of(node.children[0])
        value = node.children[2] if len(node.children) > 2 else None
        appends = text_of(node.children[1]) == "+="
        if value is not None and value.type == "array":
            words = self._words(value.named_children)
            before = self.variables.arrays.get(name, []) if appends else []
            self.variables.arrays[name] = [*before, *words]
            self._put(name, next(iter(self.variables.arrays[name]), ""))  # what $NAME alone stands for
            return
        start = self.variables.values.get(name, "") if appends else ""
        self._put(name, joined((start, "" if value is None else self.variables.value(value))))

    def _words(self, nodes: Sequence[Node]) -> list[Word]:
        return [word for node in nodes if node.type != "comment" for word in self.variables.words(node)]

    def _declare(self, node: Node) -> None:
        """``export``, ``declare``, ``readonly``: the variables that it sets, and what it exports."""
        exports = re.match(r"export\b|(declare|typeset) -\w*x", text_of(node)) is not None
        empty = ""
        for child in node.named_children:
            name = text_of(child)
            if child.type == "variable_assignment":
                self._assign(child)
                name = text_of(child.children[0])
                empty = name if len(child.children) == 2 else ""
            elif empty and not _NAME.fullmatch(name):
                self._slip(node, empty, name)
            elif child.type in ("command_substitution", "string", "concatenation"):
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
                value = child.children[2:]
                own[text_of(child.children[0])] = self.variables.value(value[0]) if value else ""
            elif child.type not in _REDIRECTS:
                words += self._words(child.named_children if child.type == "command_name" else [child])
        if words:
            self._slips(node, list(map(written, words)), own)
            self._start(node, words, own)

    def _slips(self, node: Node, texts: list[str], own: dict[str, Word]) -> None:
        """The blank in ``NAME= 0,1`` and ``NAME = value``."""
        empty = [name for name, value in own.items() if not written(value)]
        if empty and re.fullmatch(r"\d[\d,.]*", texts[0]):
            self._slip(node, empty[-1], texts[0])
            own[empty[-1]] = texts[0]
        elif texts[1:2] == ["="] and len(texts) > 2 and _NAME.fullmatch(texts[0]):
            self._slip(node, texts[0], texts[2])

    def _slip(self, node: Node, name: str, value: str) -> None:
        """A blank beside ``=``: taken as it was meant, so that the other checks see it."""
        self.launch.cuts.append(Cut(node.start_point.row + 1, "assignment", f"{name}={value}"))
        self._put(name, value)

    def _start(self, node: Node, words: list[Word], own: dict[str, Word]) -> None:
        """Follow a command by its words and the variables before it."""
        texts = list(map(written, words))
        name = os.path.basename(texts[0])
        swift = commands.split_at_swift(words)
        if _OPTION.match(texts[0]):
            self._continue(node, words)
        elif swift is not None:
            self._swift(node, *swift, own)
        elif name in ("source", ".", "eval"):
            self._sets_anything(Unknown(texts[-1]) if name != "eval" else joined(tuple(words[1:])))
        elif name == "cd":
            is_known = len(words) == 2 and isinstance(words[1], str) and texts[1] != "-"
            to = os.path.join(self.folder or "", os.path.expanduser(texts[-1]))
            self.folder = to if is_known and self.folder is not None else None
        elif name == "set":
            self.exports_all |= texts[1:2] == ["-a"]
        elif name in ("read", "mapfile", "readarray", "getopts", "printf"):
            self._forget(filter(_NAME.fullmatch, texts[1:]))
        else:
            other = commands.script_of(texts)
            if other:
                self.launch.not_followed.append(f"{other} (line {node.start_point.row + 1})")
            self.launch.makes_files |= name not in _WRITE_NOTHING
        if swift is None:
            self._not_followed(node, f"the words of {name}", " ".join(texts))

    def _continue(self, node: Node, words: list[Word]) -> None:
        """Options that a command has lost, read as they were meant."""
        if self.previous is not None:
            last = self.launch.commands[-1]
            self.launch.commands[-1] = replace(last, words=(*last.words, *words))
            self.launch.cuts.append(commands.cut_between(self.previous, node))
            self.previous = node

    def _swift(self, node: Node, started: list[Word], rest: list[Word], own: dict[str, Word]) -> None:
        """A command of ms-swift."""
        programs = commands.names(started)
        if programs & commands.ELSEWHERE:
            self._not_followed(node, "another machine or container")
            return
        values = self.variables.values
        for child in node.named_children:
            if child.type == "raw_string":
                names = re.findall(r"\$\{?([A-Za-z_]\w*)", text_of(child))
                self.launch.literal += [name for name in names if name in values]
        seen = {name: value for name, value in values.items() if name in self.exported}
        environ = {**seen, **own, **commands.variables(started)}
        more = [Unknown(name, many=True) for name in sorted(programs & {"xargs", "parallel"})]
        self.launch.commands.append(
            Command(
                ("megatron" if "megatron" in programs else "swift", *rest, *more),
                environ,
                unexported=frozenset(values) - frozenset(environ),
                waits=_waits(node) and not programs & commands.DETACHED,
                folder=self.folder,
                complete=self.variables.complete,
                makes_files=self.launch.makes_files,
                launcher=tuple(map(written, started)),
            )
        )
        self.previous = node


def _waits(node: Node) -> bool:
    """Whether the script goes on only when a command has ended."""
    place: Node | None = node
    while place is not None:
        following = place.next_sibling
        if place.type in _BRANCHES[:-1] or (following is not None and following.type == "&"):
            return False
        place = place.parent
    return True
