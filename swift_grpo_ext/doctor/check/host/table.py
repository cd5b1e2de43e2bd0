"""Table of ms-swift's options and registered names, because importing ms-swift takes ten seconds.

A child process makes it once for the installed releases; it is kept in the user's cache folder.
"""

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.folders import kept, read_json, user_cache
from swift_grpo_ext.versions import installed_version

MEGATRON = "MegatronRLHFArguments"
TRAIN = ("RLHFArguments", MEGATRON)
"""The argument classes of training, by engine."""
_FORM = 10  # version of the table's format; a table of another version is made again
_OF = ("ms-swift", "transformers", "trl", "peft")
_LIMIT = 300  # seconds for the child, of which ten to thirty are ms-swift's import


def cache_folder() -> Path:
    """Folder for the cached answers of ms-swift, for the installed releases."""
    releases = (installed_version(name) or "none" for name in _OF)
    return user_cache() / "-".join(["ms-swift", *releases, str(_FORM)])


def ask(questions: list[dict[str, Any]]) -> list[Any]:
    """Answers of a child process, which imports ms-swift, to questions of `host.child`.

    Raises:
        SwiftGrpoExtError: it fails, or takes longer than five minutes.
    """
    lines = "".join(json.dumps(question, default=str) + "\n" for question in questions)
    environ = child_environ()
    try:
        done = subprocess.run(
            CHILD, input=lines, capture_output=True, text=True, env=environ, timeout=_LIMIT, check=False
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        last = done.stderr.strip().rpartition("\n")[2] or "it ended"
        fault = last if len(answers) != len(questions) else ""
    except (subprocess.TimeoutExpired, ValueError):
        fault = f"no answer after {_LIMIT} s"
    if fault:
        what = f"ms-swift could not be asked: {fault}"
        raise SwiftGrpoExtError(what, fix="check again, or python -c 'import swift.arguments'")
    return answers


# -P, so that a folder named swift in the current directory is not imported as ms-swift.
CHILD = (sys.executable, "-P", "-m", "swift_grpo_ext.doctor.check.host.child")
# Variables of a rank, and of preflight within one.
OF_A_RUN = frozenset(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SWIFT_GRPO_EXT_PREFLIGHT"))


def child_environ() -> dict[str, str]:
    """The child's variables: those of this process without a rank's, and without GPU and hub."""
    environ = {name: value for name, value in os.environ.items() if name not in OF_A_RUN}
    return {**environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}


def is_kept() -> bool:
    """True if the table of the installed releases is cached."""
    return (cache_folder() / "table.json").is_file()


@cache
def table() -> dict[str, Any]:
    """The table of the installed releases: ``options`` by kind, ``names`` by argument.

    Raises:
        SwiftGrpoExtError: ms-swift cannot be imported.
    """
    path = cache_folder() / "table.json"
    content: dict[str, Any] = read_json(path) or kept(path, ask([{}])[0])
    return content


def folder() -> Path:
    """Folder in which ms-swift is installed, found without importing it.

    Raises:
        ImportError: it is not installed.
    """
    spec = find_spec("swift")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("ms-swift is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def names(argument: str) -> frozenset[str]:
    """The names that ms-swift knows for an argument: ``template``, ``reward_funcs``, ..."""
    return frozenset(table()["names"][argument])


class Option(NamedTuple):
    """An option of ms-swift's parser."""

    name: str
    kind: str  # bool, int, float or str
    nargs: str | int | None  # `+` takes words up to the next option, `?` at most one, 0 none
    choices: list[Any] | None
    const: Any  # its value if no word follows it

    def value(self, text: str) -> Any:
        """The value that the parser reads from a word.

        Raises:
            ValueError: it is not a number.
            KeyError: it is not one of the choices.
        """
        if self.choices is not None:
            return {str(choice): choice for choice in self.choices}[text]
        if self.kind == "bool":
            return _BOOLEAN[text.lower()]
        return {"int": int, "float": float}.get(self.kind, str)(text)


_BOOLEAN = dict.fromkeys(("yes", "true", "t", "y", "1"), True)
_BOOLEAN |= dict.fromkeys(("no", "false", "f", "n", "0"), False)


@cache
def options(kind: str) -> dict[str, Option]:
    """The options of an argument class, by each of their flags."""
    rows = table()["options"][kind]
    return {flag: Option(*fields) for flags, *fields in rows for flag in flags}


def defaults(kind: str) -> dict[str, Any]:
    """The parser's default values of an argument class."""
    values: dict[str, Any] = table()["defaults"][kind]
    return values
