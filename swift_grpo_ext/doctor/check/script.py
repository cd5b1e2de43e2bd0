"""Follows a script statement by statement: its variables, and the ``swift`` commands that it starts.

Nothing is executed. Functions, other files, other machines and here-documents are not followed; what a
branch or a loop sets is not known behind it.
"""

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from tree_sitter import Node

from swift_grpo_ext.doctor.check import launch
from swift_grpo_ext.doctor.check.launch import Command, Cut, Launch
from swift_grpo_ext.doctor.check.shell import Text, Variables, parsed, text_of
from swift_grpo_ext.doctor.check.unknown import Unknown, Word, joined, written

_NAME = re.compile(r"[A-Za-z_]\w*")
# Variables that the text of a function sets, but for its local ones.
_SETS = re.compile(r"(?:^|[;{])\s*(?:export\s+)?([A-Za-z_]\w*)\+?=", re.MULTILINE)
_OPTION = re.compile(r"[-–—]+[A-Za-z]")
_TEST = re.compile(r"(\[|test\b|grep\b|command\b|which\b|!)")
_LEFT_OUT = re.compile(r"#+ *(\.\.\.|…)")  # "# ... other parameters", at the end of a command in a document
_PARTS = (
    *("program", "do_group", "compound_statement", "else_clause", "elif_clause", "case_item"),
    *("pipeline", "negated_command", "variable_assignments"),
)
_BRANCHES = ("if_statement", "while_statement", "for_statement", "c_style_for_statement", "case_statement")
_REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")
# Files that people source for their shell, not for a run's ranks; and programs that print variables for it.
_OF_THE_SHELL = re.compile(
    r"(^|/)(activate|conda\.sh|\.\w*rc|\.?(bash_)?profile|set_env\.sh|modules?\.sh|nvm\.sh)$"
)
_SHELL_HOOKS = re.compile(r"\b(conda|mamba|micromamba|pyenv|ssh-agent|modulecmd|brew|direnv|starship)\b")
_FETCHES = re.compile(r"\$\([^()]*\b(modelscope|huggingface-cli|hf|git clone|wget|curl)\b")
# Commands that write no file that a run reads.
_WRITE_NOTHING = frozenset(
    """
    : [ [[ alias break cat cd conda continue date df du echo env exit export false free fuser grep head
    hostname hostnamectl id kill killall ls lscpu lsof mamba mkdir modprobe module nc netstat npu-smi
    nvidia-smi pip pip3 pkill popd printf ps pushd ray return rm scontrol set shopt sleep ss swanlab
    swift swift-grpo-ext sync tail tee test time touch trap true ulimit umask uname unset wait wandb wc which
    whoami
    """.split()  # noqa: SIM905
)


def read_script(
    text: str,
    environ: Mapping[str, str] | None = None,
    *,
    path: str = "",
    arguments: Sequence[str] | None = None,
) -> Launch:
    """Read a shell script, started with these variables and arguments (None: not known).

    A command that a line cuts short is read as it was meant, so that the other checks still see all of it.
    """
    inherited = {name: (value,) for name, value in (environ or {}).items()}
    given: list[Word] | None = None if arguments is None else list(arguments)
    reader = _Reader(Variables(dict(inherited), positional=given, script=path))
    reader.launch.windows = "\r\n" in text
    reader.launch.makes_files = bool(_FETCHES.search(text))
    reader.block(parsed(text))
    result = reader.launch
    result.names |= {name for command in result.commands for name in command.environ} - set(inherited)
    result.used = frozenset(re.findall(r"\$\{?([A-Za-z_]\w*)", text))
    return result


class _Reader:
    """What is known of a script at one of its statements."""

    def __init__(self, variables: Variables) -> None:
        self.variables = variables
        self.launch = Launch()
        self.exported = set(variables.values)
        self.exports_all = False  # after `set -a`
        self.waits = True  # the script goes on only when the command has ended
        self.functions: dict[str, set[str]] = {}  # the variables that each sets
        self.previous: Node | None = None  # the last `swift` command
        self.ended = False  # after `exit`

    def block(self, node: Node) -> None:
        """Follow the statements of a node."""
        waits = self.waits
        for child, following in zip_longest(node.children, node.children[1:]):
            self.waits = waits and not (following is not None and following.type == "&")
            if not self.ended:
                self._statement(child)
        self.waits = waits

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
            case "function_definition":
                self._not_followed(node, "a function")
                self.functions[text_of(node.named_children[0])] = set(_SETS.findall(text_of(node)))
            case "list":
                self._list(node)
            case "subshell":
                self._apart(node.children)
            case "redirected_statement":
                self._redirected(node)
            case "comment" if self.previous is not None and _LEFT_OUT.match(text_of(node)):
                self._append([Unknown(text_of(node), many=True)])
            case kind if kind in _BRANCHES:
                self._branch(node)
            case kind if kind in _PARTS:
                self.block(node)

    def _list(self, node: Node) -> None:
        """``a && b`` and ``a || b``: b is a branch, unless a is a command that is meant to succeed."""
        first, operator, second = node.children[:3]
        self._statement(first)
        last = first.children[-1] if first.type == "list" else first
        if text_of(operator) == "&&" and last.type != "test_command" and not _TEST.match(text_of(last)):
            self._statement(second)
        else:
            self._apart([second])

    def _branch(self, node: Node) -> None:
        """``if``, ``for``, ``case``, ``while``."""
        if node.type == "for_statement":
            name = text_of(node.named_children[0])
            self._put(name, (Unknown(f"${name}"),))
        waits, self.waits = self.waits, False
        self._apart(node.children)
        self.waits = waits

    def _apart(self, nodes: Sequence[Node]) -> None:
        """Follow statements that may not be executed: what they change is not known behind them."""
        variables = self.variables
        values = dict(variables.values)
        arrays = dict(variables.arrays)
        folder = variables.folder
        for node in nodes:
            self._statement(node)
            self.ended = False
        for name in [name for name, value in variables.values.items() if values.get(name) is not value]:
            variables.values[name] = (Unknown(f"${name}"),)
        for name in [name for name, value in variables.arrays.items() if arrays.get(name) is not value]:
            variables.arrays[name] = [Unknown(f"${{{name}[@]}}", many=True)]
        if variables.folder != folder:
            variables.folder = None

    def _not_followed(self, node: Node, place: str, text: str = "") -> None:
        """A `swift rlhf` command that stands where it is not read."""
        if launch.INNER.search(text or text_of(node)):
            self.launch.not_followed.append(f"{place} (line {node.start_point.row + 1})")

    def _redirected(self, node: Node) -> None:
        """A command with files and here-documents behind it."""
        for child in node.children:
            if child.type == "heredoc_redirect":
                self._not_followed(child, "a here-document")
                self._redirected(child)
            elif child.type == "file_redirect":
                self.launch.made.add(self._target(child))
            elif child.type not in _REDIRECTS:
                self._statement(child)

    def _target(self, node: Node) -> str:
        """The file that a redirection writes; empty where that is not known, or it is none."""
        words = self.variables.words(node.named_children[-1:]) if ">" in text_of(node) else []
        return words[0] if words and isinstance(words[0], str) and not words[0].isdecimal() else ""

    def _put(self, name: str, value: Text) -> None:
        """Set a variable."""
        self.variables.values[name] = value
        self.launch.names.add(name)
        if self.exports_all:
            self.exported.add(name)

    def _assign(self, node: Node, into: dict[str, Text] | None = None) -> None:
        """``NAME=value``, ``NAME+=value`` or an array."""
        name = text_of(node.children[0])
        appends = text_of(node.children[1]) == "+="
        value = node.children[2] if len(node.children) > 2 else None
        if value is not None and value.type == "array":
            parts = [child for child in value.named_children if child.type != "comment"]
            before = self.variables.arrays.get(name, []) if appends else []
            self.variables.arrays[name] = [*before, *self.variables.words(parts)]
            self.launch.names.add(name)
            return
        text = () if value is None else self.variables.text(value)
        if appends:
            text = (*(self.variables.get(name) or ()), *text)
        if into is None:
            self._put(name, text or ("",))
        else:
            into[name] = text or ("",)

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
                self._sets_anything(joined(self.variables.text(child)))
            if exports and _NAME.fullmatch(name):
                self.exported.add(name)

    def _sets_anything(self, text: Word) -> None:
        """Variables that a command prints: ``export $(cat .env)``, ``eval "$(...)"``."""
        if isinstance(text, Unknown) and not _SHELL_HOOKS.search(text.name):
            self.launch.unread.append(text.name)
            self.variables.complete = False

    def _command(self, node: Node) -> None:
        """Follow one simple command."""
        before: dict[str, Text] = {}
        nodes: list[Node] = []
        for child in node.named_children:
            if child.type == "variable_assignment" and not nodes:
                self._assign(child, before)
            elif child.type == "command_name":
                nodes.append(child.named_children[0] if child.named_children else child)
            elif child.type == "file_redirect":
                self.launch.made.add(self._target(child))
            elif child.type not in _REDIRECTS:
                nodes.append(child)
        words = self._as_meant(node, self.variables.words(nodes), before)
        if words:
            self._start(node, words, before)
        elif not nodes:
            for name, value in before.items():
                self._put(name, value)

    def _as_meant(self, node: Node, words: list[Word], before: dict[str, Text]) -> list[Word]:
        """Without the blank in ``NAME= value`` and ``NAME = value``."""
        texts = list(map(written, words))
        empty = [name for name, value in before.items() if not any(map(written, value))]
        if empty and texts and re.fullmatch(r"\d[\d,.]*", texts[0]):
            self._slip(node, empty[-1], texts[0])
            before[empty[-1]] = (words[0],)
            return words[1:]
        if texts[1:2] == ["="] and len(words) > 2 and _NAME.fullmatch(texts[0]):
            self._slip(node, texts[0], texts[2])
            before[texts[0]] = (words[2],)
            return words[3:]
        return words

    def _slip(self, node: Node, name: str, value: str) -> None:
        """A blank beside ``=``: taken as it was meant, so that the other checks see it."""
        self.launch.cuts.append(Cut(node.start_point.row + 1, "assignment", f"{name}={value}"))
        self._put(name, (value,))

    def _start(self, node: Node, words: list[Word], before: dict[str, Text]) -> None:
        """Follow a command by its words and the variables before it."""
        texts = list(map(written, words))
        name = os.path.basename(texts[0])
        swift = launch.split_at_swift(words)
        if _OPTION.match(texts[0]):
            self._continue(node, words)
        elif swift is not None:
            self._swift(node, *swift, before)
        elif name in self.functions:
            for variable in self.functions[name]:
                self._put(variable, (Unknown(f"${variable}"),))
        elif name == "exit":
            self.ended = True
        elif name in ("touch", "tee"):
            self.launch.made |= {word for word in words[1:] if isinstance(word, str)}
        elif name == "shift" and self.variables.positional:
            count = int(texts[1]) if texts[1:] and texts[1].isdecimal() else 1
            self.variables.positional = self.variables.positional[count:]
        else:
            self._builtin(name, words, texts)
            other = launch.script_of(texts)
            if other:
                self.launch.not_followed.append(f"{other} (line {node.start_point.row + 1})")
            self._not_followed(node, f"the words of {name}", " ".join(texts))
            self.launch.makes_files |= name not in _WRITE_NOTHING

    def _builtin(self, name: str, words: list[Word], texts: list[str]) -> None:
        """What a command of the shell changes."""
        if name in ("source", ".") and not _OF_THE_SHELL.search(texts[-1]):
            self._sets_anything(Unknown(texts[-1]))
        elif name in ("cd", "pushd", "popd") and texts[1:] != ["-"]:
            here = self.variables.folder
            is_followed = name == "cd" and len(words) == 2 and isinstance(words[1], str) and here is not None
            to = texts[-1] if texts[-1].startswith("~") else os.path.join(here or "", texts[-1])
            self.variables.folder = to if is_followed else None
        elif name == "set":
            self.exports_all |= texts[1:2] == ["-a"]
            if "--" in texts:
                self.variables.positional = None
        elif name == "eval":
            self._sets_anything(joined(tuple(words[1:])))
        elif name in ("read", "mapfile", "readarray", "getopts"):
            for variable in filter(_NAME.fullmatch, texts[1:]):
                self._put(variable, (Unknown(f"${variable}"),))

    def _append(self, words: list[Word]) -> None:
        """Words that belong to the last command."""
        last = self.launch.commands[-1]
        self.launch.commands[-1] = replace(last, words=(*last.words, *words))

    def _continue(self, node: Node, words: list[Word]) -> None:
        """Options that a command has lost, read as they were meant."""
        if self.previous is not None:
            self._append(words)
            self.launch.cuts.append(launch.cut_between(self.previous, node))
            self.previous = node

    def _swift(self, node: Node, started: list[Word], rest: list[Word], before: dict[str, Text]) -> None:
        """A command of ms-swift."""
        programs = launch.names(started)
        if programs & launch.ELSEWHERE:
            self._not_followed(node, "another machine or container")
            return
        values = self.variables.values
        for child in node.named_children:
            if child.type == "raw_string":
                names = re.findall(r"\$\{?([A-Za-z_]\w*)", text_of(child))
                self.launch.literal += [name for name in names if name in values]
        seen = {name: value for name, value in values.items() if name in self.exported} | before
        environ = {name: joined(value) for name, value in seen.items()} | launch.variables(started)
        more = [Unknown(name, many=True) for name in sorted(programs & {"xargs", "parallel"})]
        self.launch.commands.append(
            Command(
                ("megatron" if "megatron" in programs else "swift", *rest, *more),
                environ,
                unexported=frozenset(values) - frozenset(environ),
                waits=self.waits and not programs & launch.DETACHED,
                folder=self.variables.folder,
                complete=self.variables.complete,
                makes_files=self.launch.makes_files,
                launcher=tuple(map(written, started)),
            )
        )
        self.previous = node
