"""Follows a script statement by statement: its variables, and the ``swift`` commands that it starts.

Nothing is executed. Functions, other files, other machines and here-documents are not followed; what a
branch or a loop sets is not known behind it.
"""

import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tree_sitter import Node

from swift_grpo_ext.doctor.check.launch import launchers
from swift_grpo_ext.doctor.check.launch.commands import Command, Cut, Launch
from swift_grpo_ext.doctor.check.launch.shell import Value, Variables, parsed, text_of
from swift_grpo_ext.doctor.check.unknown import Unknown, Word, joined, written

_NAME = re.compile(r"[A-Za-z_]\w*")
DOLLAR = re.compile(r"\$\{?([A-Za-z_]\w*)")
# Variables that the text of a function sets, but for its local ones.
_SETS = re.compile(r"(?:^|[;{])\s*(?:export\s+)?([A-Za-z_]\w*)\+?=", re.MULTILINE)
# A blank beside the = of an assignment: `NAME= 0,1`, `NAME = value`.
_SLIP = re.compile(
    r"(?:\w+=\S+\s+)*(?:export\s+)?([A-Za-z_]\w*)(?:=[ \t]+(\d[\d,.]*)(?!\S)|[ \t]+=[ \t]+(\S+))"
)
_OPTION = re.compile(r"[-–—]+[A-Za-z]")
_PARTS = (
    *("program", "do_group", "compound_statement", "else_clause", "elif_clause", "case_item"),
    *("pipeline", "negated_command", "variable_assignments"),
)
_BRANCHES = (
    *("if_statement", "while_statement", "for_statement", "c_style_for_statement", "case_statement"),
    "subshell",
)
_TO_FILE = re.compile(r"[&\d]?>{1,2}\s*(?!/dev/null|&)\S")
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
    reader.launch.text = text
    reader.launch.makes_files = bool(_FETCHES.search(text))
    reader.block([parsed(text)])
    seen = (name for command in reader.launch.commands for name in command.environ)
    reader.launch.names.update(name for name in seen if name not in inherited)
    return reader.launch


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
        before = dict(self.variables.values)
        folder = self.folder
        if nodes[0].type == "for":
            self._forget([text_of(nodes[1])])
        self.block(nodes)
        self._forget([name for name, value in self.variables.values.items() if before.get(name) is not value])
        if self.folder != folder:
            self.folder = None

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

    def _redirected(self, node: Node) -> None:
        """A command with files and here-documents behind it; a log of a training is not read by another."""
        for child in node.children:
            if child.type == "heredoc_redirect":
                self._not_followed(child, "a here-document")
            elif child.type == "file_redirect" and _TO_FILE.match(text_of(child)):
                self.launch.makes_files |= "swift" not in text_of(node.children[0])
        self.block(node.children)

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
            self._put(
                name, (*(before if isinstance(before, tuple) else ()), *self._words(value.named_children))
            )
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
        self._slip(node)

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
        if words:
            self._start(node, words, {**own, **self._slip(node)})

    def _slip(self, node: Node) -> dict[str, str]:
        """A blank beside ``=``: taken as it was meant, so that the other checks see it."""
        slip = _SLIP.match(text_of(node))
        if slip is None:
            return {}
        name, value = slip[1], slip[2] or slip[3]
        self.launch.cuts.append(Cut(node.start_point.row + 1, "assignment", f"{name}={value}"))
        self._put(name, value)
        return {name: value}

    def _start(self, node: Node, words: list[Word], own: dict[str, Word]) -> None:
        """Follow a command by its words and the variables before it."""
        texts = list(map(written, words))
        name = os.path.basename(texts[0])
        if swift := launchers.split_at_swift(words):
            self._swift(node, *swift, own)
            return
        if _OPTION.match(texts[0]):
            self._continue(node, words)
        elif name in ("source", "."):
            self._sets_anything(Unknown(texts[-1]))
        elif name == "eval":
            self._sets_anything(joined(tuple(words[1:])))
        elif name == "cd":
            is_known = len(words) == 2 and isinstance(words[1], str) and texts[1] != "-"
            to = os.path.join(self.folder or "", os.path.expanduser(texts[-1]))
            self.folder = to if is_known and self.folder is not None else None
        elif name == "set":
            self.exports_all |= texts[1:2] == ["-a"]
        elif name in ("read", "mapfile", "readarray", "getopts", "printf"):
            self._forget(filter(_NAME.fullmatch, texts[1:]))
        else:
            if other := launchers.script_of(texts):
                self.launch.not_followed.append(f"{other} (line {node.start_point.row + 1})")
            self.launch.makes_files |= name not in _WRITE_NOTHING
        self._not_followed(node, f"the words of {name}", " ".join(texts))

    def _continue(self, node: Node, words: list[Word]) -> None:
        """Options that a command has lost, read as they were meant."""
        if self.previous is not None:
            last = self.launch.commands[-1]
            self.launch.commands[-1] = replace(last, words=(*last.words, *words))
            self.launch.cuts.append(_cut_between(self.previous, node))
            self.previous = node

    def _swift(self, node: Node, started: list[Word], rest: list[Word], own: dict[str, Word]) -> None:
        """A command of ms-swift."""
        programs = launchers.names(started)
        if programs & launchers.ELSEWHERE:
            self._not_followed(node, "another machine or container")
            return
        values = self.variables.values
        quoted = " ".join(text_of(child) for child in node.named_children if child.type == "raw_string")
        self.launch.literal += [name for name in DOLLAR.findall(quoted) if name in values]
        seen = {name: self.variables.plain(name) for name in values if name in self.exported}
        environ = {**seen, **own, **launchers.variables(started)}
        more = [Unknown(name, many=True) for name in sorted(programs & {"xargs", "parallel"})]
        command = Command(
            ("megatron" if "megatron" in programs else "swift", *rest, *more),
            environ,
            unexported=frozenset(values) - frozenset(environ),
            waits=_waits(node) and not programs & launchers.DETACHED,
            folder=self.folder,
            complete=self.variables.complete,
            makes_files=self.launch.makes_files,
            launcher=tuple(map(written, started)),
        )
        self.launch.commands.append(command)
        self.previous = node


def _cut_between(previous: Node, node: Node) -> Cut:
    """Why the shell ends a command between two nodes."""
    whole = node
    while whole.parent is not None:
        whole = whole.parent
    between = (whole.text or b"")[previous.end_byte : node.start_byte].decode("utf-8", "replace")
    line = previous.end_point.row + 1
    before, sign, after = between.partition("#")
    if sign:
        return Cut(line + before.count("\n"), "comment", sign + after.splitlines()[0])
    if re.search(r"\\[ \t]+\n", between):
        return Cut(line, "space")
    return Cut(line + 1, "blank") if re.search(r"\n[ \t]*\n", between) else Cut(line, "backslash")


def _waits(node: Node) -> bool:
    """Whether the script goes on only when a command has ended."""
    place: Node | None = node
    while place is not None:
        following = place.next_sibling
        if place.type in _BRANCHES[:-1] or (following is not None and following.type == "&"):
            return False
        place = place.parent
    return True
