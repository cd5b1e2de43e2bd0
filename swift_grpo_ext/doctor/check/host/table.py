"""What ms-swift's parser takes and which names it knows, as a table: importing ms-swift takes ten seconds.

A child process makes it once of the installed releases; it is kept in the user's cache folder.
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
_FORM = 10  # of the table; a table of another form is made again
_OF = ("ms-swift", "transformers", "trl", "peft")
_LIMIT = 300  # seconds for the child, of which ten to thirty are ms-swift's import


def cache_folder() -> Path:
    """Where what ms-swift says is kept, for the installed releases."""
    releases = (installed_version(name) or "none" for name in _OF)
    return user_cache() / "-".join(["ms-swift", *releases, str(_FORM)])


def ask(questions: list[dict[str, Any]], *, own_network: bool = False) -> list[Any]:
    """What a child process, which imports ms-swift, answers to questions of `host.child`.

    ``own_network``: it has this machine's network and GPUs, for rewards that ask a server.

    Raises:
        SwiftGrpoExtError: it fails, or takes longer than five minutes.
    """
    lines = "".join(json.dumps(question, default=str) + "\n" for question in questions)
    environ = child_environ()
    if own_network:
        environ |= {"HF_HUB_OFFLINE": "", "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "")}
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


# -P: a folder called swift in the current one is not ms-swift.
CHILD = (sys.executable, "-P", "-m", "swift_grpo_ext.doctor.check.host.child")
# Variables of a rank, and of preflight within one.
OF_A_RUN = frozenset(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SWIFT_GRPO_EXT_PREFLIGHT"))


def child_environ() -> dict[str, str]:
    """This process's variables, as the child has them: of no rank, and without GPU and hub."""
    environ = {name: value for name, value in os.environ.items() if name not in OF_A_RUN}
    return {**environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}


def is_kept() -> bool:
    """The table of the installed releases has been made before."""
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
    """Where ms-swift is installed, without importing it.

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
    """An option as ms-swift's parser has it."""

    name: str
    kind: str  # bool, int, float or str
    nargs: str | int | None  # `+` takes words up to the next option, `?` may have none, 0 has none
    choices: list[Any] | None
    const: Any  # its value where no word follows it

    def value(self, text: str) -> Any:
        """A word as the parser reads it.

        Raises:
            ValueError: it is no number.
            KeyError: it is not one of its words.
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
    """The options of a class by each of their flags."""
    rows = table()["options"][kind]
    return {flag: Option(*fields) for flags, *fields in rows for flag in flags}


def defaults(kind: str) -> dict[str, Any]:
    """Values of options that are not given, as the parser has them."""
    values: dict[str, Any] = table()["defaults"][kind]
    return values
