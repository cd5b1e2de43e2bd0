"""Commands that a script starts: a function, a builtin, another script, or ``swift`` behind its launchers."""

from __future__ import annotations

import os.path
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from swift_grpo_ext.doctor.check import launch
from swift_grpo_ext.doctor.check.launch import DETACHED, ELSEWHERE, Command, Launch
from swift_grpo_ext.doctor.check.shell import Variables, as_written, parsed, text_of
from swift_grpo_ext.doctor.check.words import base, is_known, is_open, opened, shown, unknown

DEEPEST = 8  # shells and functions within each other
# Files that people source for their shell, not for a run's ranks.
_OF_THE_SHELL = re.compile(
    r"(^|/)(activate|conda\.sh|\.\w*rc|\.?(bash_)?profile|set_env\.sh|modules?\.sh|nvm\.sh)$"
)
_OF_A_SHELL = re.compile(r"\b(conda|mamba|micromamba|pyenv|ssh-agent|modulecmd|brew|direnv|starship)\b")
# Commands that write no file that a run reads.
_WRITE_NOTHING = """
    : [ [[ alias break cat cd conda continue date df du echo env exit export false free fuser grep head
    hostname hostnamectl id kill killall ls lscpu lsof mamba mkdir modprobe module nc netstat npu-smi
    nvidia-smi pip pip3 pkill popd printf ps pushd ray return rm scontrol set shopt sleep ss swanlab
    swift swift-grpo-ext sync tail tee test time trap true ulimit umask uname unset wait wandb wc which
    whoami
    """
_FETCHES = re.compile(r"\$\([^()]*\b(modelscope|huggingface-cli|hf|git clone|wget|curl)\b")
NAME = re.compile(r"[A-Za-z_]\w*")
_OPTION = re.compile(r"[-–—]+[A-Za-z]")


@dataclass
class Shell(ABC):
    """One shell that reads a script, and what it knows."""

    variables: Variables  # its variables
    read: Callable[[str], str | None]  # text of a file; None where it is not here
    found: Launch = field(default_factory=Launch)  # what was found so far, shared by all shells of a script
    functions: dict[str, Node] = field(default_factory=dict)  # bodies by name
    exported: set[str] = field(default_factory=set)  # names that commands see
    exports_all: bool = False  # after `set -a`
    # it goes on only when a command has ended: it is not in the background, nor in a branch
    waits: bool = True
    elsewhere: bool = False  # it runs on another machine or in a container, with other files
    depth: int = 0  # shells and functions around it
    called: set[str] = field(default_factory=set)  # functions that were followed
    ended: bool = False  # after `exit`
    previous: Node | None = None  # the last `swift` command

    @abstractmethod
    def block(self, node: Node) -> None:
        """Follow the statements of a node."""

    def run(self, text: str) -> None:
        """Follow text in this shell."""
        if self.depth <= DEEPEST:
            self.found.makes_files |= bool(_FETCHES.search(text))
            self.block(parsed(text))
            for name in [name for name in self.functions if name not in self.called]:
                self.call(name, None)  # started in a way that is not seen

    def nested(self, node: Node) -> None:
        """Follow what a word stands for: a function, or other text."""
        if self.depth <= DEEPEST:
            self.depth += 1
            self.block(node)
            self.depth -= 1

    def call(self, name: str, arguments: list[str] | None) -> None:
        """Follow a function's body with what it is called with; None if that is not known."""
        before = self.variables.positional, self.ended, self.waits
        self.called.add(name)
        self.variables.positional, self.waits = all_known(arguments), False
        self.nested(self.functions[name])
        self.variables.positional, self.ended, self.waits = before

    def put(self, name: str, value: str) -> None:
        """Set a variable."""
        self.variables.own[name] = value
        self.found.names.add(name)
        if self.exports_all:
            self.exported.add(name)

    def sets_anything(self, text: str) -> None:
        """Variables that a command prints: ``export $(cat .env)``, ``eval "$(...)"``."""
        if not is_known(text) and not _OF_A_SHELL.search(text):
            self.found.unread.append(shown(text))
            self.variables.complete = False

    def seen(self, before: dict[str, str], elsewhere: bool) -> dict[str, str]:
        """The variables that a command sees, or was meant to see."""
        return dict(before) if elsewhere else {**self.variables.inherited, **self.variables.own, **before}

    def child(self, *, elsewhere: bool = False) -> Shell:
        """A subshell: it sees everything, and nothing that it sets is seen outside."""
        inner = replace(self.variables, own=dict(self.variables.own), arrays=dict(self.variables.arrays))
        shell = replace(self, variables=inner, exported=set(self.exported), depth=self.depth + 1, ended=False)
        shell.elsewhere |= elsewhere
        return shell

    def process(self, seen: dict[str, str], arguments: list[str] | None, *, elsewhere: bool = False) -> Shell:
        """Another shell, which sees only what is handed to it."""
        child = self.child(elsewhere=elsewhere)
        child.variables = replace(child.variables, inherited=seen, own={}, positional=arguments)
        child.exported = set()
        return child

    def content(self, name: str) -> str | None:
        """Text of a file that the script writes, or that is here."""
        text = self.found.texts.get(name.removeprefix("./")) if is_known(name) else None
        return self.read(name) if text is None and is_known(name) else text


def all_known(arguments: list[str] | None) -> list[str] | None:
    """Positional parameters; None where some may be any number of them."""
    return None if arguments is None or any(map(is_open, arguments)) else arguments


def _source(shell: Shell, words: list[str]) -> None:
    name = "".join(words[1:2])
    text = shell.content(name)
    if text is not None and shell.depth <= DEEPEST:
        shell.nested(parsed(text))
    elif name and not _OF_THE_SHELL.search(shown(name)):
        shell.found.unread.append(shown(name))
        shell.variables.complete = False


def _change_folder(shell: Shell, words: list[str]) -> None:
    to, here = words[-1] if len(words) > 1 else "~", shell.variables.folder
    if to != "-":
        there = None if here is None or not is_known(to) else os.path.join(here, to)
        shell.variables.folder = to if there and to.startswith("~") else there


def _set(shell: Shell, words: list[str]) -> None:
    if "--" in words:
        shell.variables.positional = all_known(words[words.index("--") + 1 :])
    shell.exports_all |= words[1:2] == ["-a"] or words[1:3] == ["-o", "allexport"]


def _evaluate(shell: Shell, words: list[str]) -> None:
    shell.sets_anything("".join(words[1:2]))
    shell.nested(parsed(" ".join(words[1:])))


def _shift(shell: Shell, words: list[str]) -> None:
    if shell.variables.positional:
        shell.variables.positional = shell.variables.positional[1:]


def _read(shell: Shell, words: list[str]) -> None:
    for name in filter(NAME.fullmatch, words[1:]):
        shell.put(name, unknown(f"${name}"))


def _touch(shell: Shell, words: list[str]) -> None:
    shell.found.made.update(filter(is_known, words[1:]))


_BUILTINS: dict[str, Callable[[Shell, list[str]], None]] = {
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("cd", "pushd"), _change_folder),
    "popd": lambda shell, words: _change_folder(shell, ["cd", unknown("popd")]),
    "set": _set,
    "eval": _evaluate,
    "shift": _shift,
    **dict.fromkeys(("exit", "return"), lambda shell, words: setattr(shell, "ended", True)),
    **dict.fromkeys(("read", "mapfile", "readarray"), _read),
    **dict.fromkeys(("touch", "tee"), _touch),
    **dict.fromkeys(("echo", "printf"), lambda shell, words: None),
}


def start(shell: Shell, node: Node, words: list[str], before: dict[str, str]) -> None:
    """Follow a command by its words and the variables before it."""
    name, inner = base(words[0]), launch.inner_scripts(words)
    if _OPTION.match(words[0]):
        _goes_on(shell, node, words)
    elif name in shell.functions:
        shell.call(name, words[1:])
    elif name in _BUILTINS:
        _BUILTINS[name](shell, words)
    elif (found := launch.split_at_swift(words)) is not None:
        _swift(shell, node, found, before)
    elif inner:
        elsewhere = bool(ELSEWHERE & launch.names(words))
        seen = shell.seen({**before, **launch.variables(words)}, elsewhere)
        for text in inner:
            child = shell.process(seen, [], elsewhere=elsewhere)
            child.waits = shell.waits and not DETACHED & launch.names(words)
            child.run(text)
    elif (script := launch.script_of(words)) is not None:
        shell.found.makes_files = True
        if (text_of_script := shell.content(script[0])) is not None:
            shell.process(shell.seen(before, False), all_known(script[1:])).run(text_of_script)
    elif name not in _WRITE_NOTHING.split():
        shell.found.makes_files = True


def left_out(shell: Shell, node: Node) -> None:
    """``# ... other parameters`` at the end of a command in a document: they may be any."""
    if shell.previous is not None and re.match(r"#+ *(\.\.\.|…)", text_of(node)):
        _add(shell, [opened(text_of(node))])


def _add(shell: Shell, words: list[str]) -> None:
    last = shell.found.commands[-1]
    shell.found.commands[-1] = replace(last, words=(*last.words, *words))


def _goes_on(shell: Shell, node: Node, words: list[str]) -> None:
    """Options that a command has lost, read as they were meant."""
    if shell.previous is not None and shell.found.commands:
        _add(shell, words)
        shell.found.cuts.append(launch.cut_between(shell.previous, node))
        shell.previous = node


def _swift(shell: Shell, node: Node, found: tuple[list[str], list[str]], before: dict[str, str]) -> None:
    for child in node.named_children:
        if child.type == "raw_string":
            names = re.findall(r"\$\{?([A-Za-z_]\w*)", text_of(child))
            shell.found.literal += [name for name in names if shell.variables.get(name) is not None]
    started, programs = found[0], launch.names(found[0])
    rest = [*map(as_written, found[1]), *[opened("xargs")] * bool({"xargs", "parallel"} & programs)]
    seen = {**before, **launch.variables(started)}
    elsewhere = bool(ELSEWHERE & programs)
    own = set(shell.variables.own) - shell.exported - set(seen) - set(shell.variables.inherited)
    shell.found.commands.append(
        Command(
            ("megatron" if "megatron" in programs else "swift", *rest),
            shell.seen(seen, elsewhere),
            unexported=frozenset(own),
            waits=shell.waits and not DETACHED & programs,
            folder=None if elsewhere or shell.elsewhere else shell.variables.folder,
            complete=shell.variables.complete,
            makes_files=shell.found.makes_files,
            elsewhere=elsewhere or shell.elsewhere,
            launcher=tuple(started),
        )
    )
    shell.previous = node
