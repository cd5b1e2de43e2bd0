"""Commands of the shell itself that change what a script's later lines mean."""

from __future__ import annotations

import re
from collections.abc import Callable

from swift_grpo_ext.doctor.check.marks import is_known, is_open, shown, unknown
from swift_grpo_ext.doctor.check.script_facts import OF_THE_SHELL
from swift_grpo_ext.doctor.check.shell import parsed
from swift_grpo_ext.doctor.check.shell_state import DEEPEST, ShellState

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
