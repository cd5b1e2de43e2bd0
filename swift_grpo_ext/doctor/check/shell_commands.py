"""Commands that a script starts: a function, a builtin, another script, or ``swift`` behind its launchers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tree_sitter import Node

from swift_grpo_ext.doctor.check import launcher
from swift_grpo_ext.doctor.check.launcher import Command
from swift_grpo_ext.doctor.check.shell import as_written, parsed, text_of
from swift_grpo_ext.doctor.check.shell_state import (
    DEEPEST,
    OF_THE_SHELL,
    WRITE_NOTHING,
    Cut,
    ShellState,
    cut_between,
)
from swift_grpo_ext.doctor.check.words import is_known, is_open, opened, shown, unknown

_NAME = re.compile(r"[A-Za-z_]\w*")


def source(shell: ShellState, words: list[str]) -> None:
    """``source FILE``."""
    name = words[1] if len(words) > 1 else ""
    text = shell.found.texts.get(name.removeprefix("./")) if is_known(name) else None
    text = shell.read(name) if text is None and is_known(name) else text
    if text is not None and shell.depth <= DEEPEST:
        shell.depth += 1
        shell.block(parsed(text))
        shell.depth -= 1
    elif name and not OF_THE_SHELL.search(shown(name)):
        shell.found.unread.append(shown(name))
        shell.variables.complete = False


def change_folder(shell: ShellState, words: list[str]) -> None:
    """``cd FOLDER``."""
    to = words[-1] if len(words) > 1 else "~"
    here = shell.variables.folder
    if to == "-" or not is_known(to) or here is None:
        shell.variables.folder = None if to != "-" or here is None else here
    else:
        shell.variables.folder = (
            to if to.startswith(("/", "~")) else f"{here}/{to}".lstrip("/") if here else to
        )


def options(shell: ShellState, words: list[str]) -> None:
    """``set -a``, ``set -- ARGS``."""
    if "--" in words:
        rest = words[words.index("--") + 1 :]
        shell.variables.positional = None if any(map(is_open, rest)) else rest
    shell.exports_all |= words[1:2] == ["-a"] or words[1:3] == ["-o", "allexport"]


def evaluate(shell: ShellState, words: list[str]) -> None:
    """``eval TEXT``."""
    if any(not is_known(word) for word in words[1:2]):
        shell.sets_anything(words[1])
    if shell.depth <= DEEPEST:
        shell.depth += 1
        shell.block(parsed(" ".join(words[1:])))
        shell.depth -= 1


def shift(shell: ShellState, words: list[str]) -> None:
    """``shift``."""
    if shell.variables.positional:
        shell.variables.positional = shell.variables.positional[1:]


def end(shell: ShellState, words: list[str]) -> None:
    """``exit``."""
    shell.ended = True


def from_elsewhere(shell: ShellState, words: list[str]) -> None:
    """``read NAME``."""
    for name in words[1:]:
        if _NAME.fullmatch(name):
            shell.put(name, unknown(f"${name}"))


def touch(shell: ShellState, words: list[str]) -> None:
    """``touch FILE``, ``tee FILE``."""
    shell.found.made.update(word for word in words[1:] if is_known(word))


BUILTINS: dict[str, Callable[[ShellState, list[str]], None]] = {
    "source": source,
    ".": source,
    "cd": change_folder,
    "pushd": change_folder,
    "popd": lambda shell, words: change_folder(shell, ["cd", unknown("popd")]),
    "set": options,
    "eval": evaluate,
    "shift": shift,
    "exit": end,
    "return": end,
    "read": from_elsewhere,
    "mapfile": from_elsewhere,
    "readarray": from_elsewhere,
    "touch": touch,
    "tee": touch,
    "echo": lambda shell, words: None,
    "printf": lambda shell, words: None,
}


_OPTION = re.compile(r"[-–—]+[A-Za-z]")


def as_meant(shell: ShellState, node: Node, words: list[str], before: dict[str, str]) -> list[str]:
    """Without the blank in ``NAME= value`` and ``NAME = value``."""
    empty = [name for name, value in before.items() if not value]
    if empty and words and re.fullmatch(r"\d[\d,.]*", words[0]):
        shell.found.cuts.append(Cut(node.start_point.row + 1, "assignment", f"{empty[-1]}={words[0]}"))
        before[empty[-1]] = words[0]
        return words[1:]
    if len(words) > 2 and words[1] == "=" and _NAME.fullmatch(words[0]):
        shell.slip(node, words[0], words[2])
        before[words[0]] = words[2]
        return words[3:]
    return words


def start(shell: ShellState, node: Node, words: list[str], before: dict[str, str]) -> None:
    """Follow a command by its words and the variables before it."""
    name = words[0].rsplit("/", 1)[-1]
    if _OPTION.match(words[0]):
        _goes_on(shell, node, words)
    elif name in shell.functions:
        shell.call(name, words[1:])
    elif name in BUILTINS:
        BUILTINS[name](shell, words)
    else:
        _program(shell, node, words, before)


def left_out(shell: ShellState, node: Node) -> None:
    """``# ... other parameters`` at the end of a command in a document: they may be any."""
    if shell.previous is not None and re.match(r"#+ *(\.\.\.|…)", text_of(node)):
        last = shell.found.commands[-1]
        shell.found.commands[-1] = replace(last, words=(*last.words, opened(text_of(node))))


def _goes_on(shell: ShellState, node: Node, words: list[str]) -> None:
    """Options that a command has lost, read as they were meant."""
    if shell.previous is None or not shell.found.commands:
        return
    last = shell.found.commands[-1]
    shell.found.commands[-1] = replace(last, words=(*last.words, *words))
    shell.found.cuts.append(cut_between(shell.previous, node))
    shell.previous = node


def _program(shell: ShellState, node: Node, words: list[str], before: dict[str, str]) -> None:
    found = launcher.split_at_swift(words)
    inner = launcher.inner_scripts(words)
    if found is not None:
        _swift(shell, node, found, before)
    elif inner:
        elsewhere = launcher.is_elsewhere(words)
        for text in inner:
            child = shell.child(elsewhere=shell.elsewhere or elsewhere)
            child.variables.inherited = shell.seen({**before, **launcher.variables(words)}, elsewhere)
            child.variables.own, child.exported = {}, set()
            child.variables.positional = []
            child.waits = shell.waits and not launcher.is_detached(words)
            child.run(text)
    elif (script := launcher.script_of(words)) is not None:
        _other_script(shell, script, before)
    elif words[0].rsplit("/", 1)[-1] not in WRITE_NOTHING:
        shell.found.makes_files = True


def _other_script(shell: ShellState, words: list[str], before: dict[str, str]) -> None:
    """``bash other.sh``: followed if it is here."""
    text = shell.found.texts.get(words[0].removeprefix("./")) if is_known(words[0]) else None
    text = shell.read(words[0]) if text is None and is_known(words[0]) else text
    shell.found.makes_files = True
    if text is None:
        return
    child = shell.child()
    child.variables.inherited = shell.seen(before, False)
    child.variables.own, child.exported = {}, set()
    child.variables.positional = words[1:] if not any(map(is_open, words)) else None
    child.run(text)


def _swift(shell: ShellState, node: Node, found: tuple[list[str], list[str]], before: dict[str, str]) -> None:
    _note_literals(shell, node)
    if {"xargs", "parallel"} & {word.rsplit("/", 1)[-1] for word in found[0]}:
        found[1].append(opened("xargs"))
    started, rest = found[0], as_written(found[1])
    seen = {**before, **launcher.variables(started)}
    elsewhere = launcher.is_elsewhere(started)
    program = "megatron" if "megatron" in [word.rsplit("/", 1)[-1] for word in started] else "swift"
    own = set(shell.variables.own) - shell.exported - set(seen) - set(shell.variables.inherited)
    shell.found.commands.append(
        Command(
            (program, *rest),
            shell.seen(seen, elsewhere),
            unexported=frozenset(own),
            waits=shell.waits and not launcher.is_detached(started),
            folder=None if elsewhere or shell.elsewhere else shell.variables.folder,
            complete=shell.variables.complete,
            makes_files=shell.found.makes_files,
            elsewhere=elsewhere or shell.elsewhere,
            launcher=tuple(started),
        )
    )
    shell.previous = node


def _note_literals(shell: ShellState, node: Node) -> None:
    for child in node.named_children:
        if child.type == "raw_string":
            names = re.findall(r"\$\{?([A-Za-z_]\w*)", text_of(child))
            shell.found.literal += [name for name in names if shell.variables.get(name) is not None]
