"""Input of check: the words of a command line, a launch script, or a configuration file."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from swift_grpo_ext.doctor.check.facts.arguments import parse
from swift_grpo_ext.doctor.check.facts.environment import Environ
from swift_grpo_ext.doctor.check.facts.files import CONFIG_SUFFIXES, config_words
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.script import Command, Launch, command_of, read_script
from swift_grpo_ext.doctor.check.unknown import Unknown, Word, written
from swift_grpo_ext.doctor.gpus import read_gpus
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.versions import installed_version

_PACKAGES = ("ms-swift", "transformers", "deepspeed", "torch", "vllm")
# Names of files that are not bash scripts.
_OTHER = re.compile(r".*\.(py|ipynb|fish|ps1|bat|cmd|mk|toml|jsonl|md)|makefile", re.IGNORECASE)
_MOST_COMMANDS = 100
_TRAINS = ("rlhf", "grpo")  # the second is no command, which a rule says


def runs(words: Sequence[str]) -> list[Run]:
    """The runs that these words start: arguments of ``swift rlhf``, or a script or a configuration file.

    Raises:
        SwiftGrpoExtError: the file does not exist, or nothing in it could be read.
    """
    command = command_of(words)
    if not words or (command and not command.words):
        fix = "swift-grpo-ext check --model ... (the arguments of swift rlhf), or a launch script"
        raise SwiftGrpoExtError("nothing to check", fix=fix)
    if (
        words[0].startswith("-")
        or words[0].endswith(CONFIG_SUFFIXES)
        or (command and command.subcommand in _TRAINS)
    ):
        return [run_of(words)]
    path = Path(words[0]).expanduser()
    if not os.path.isfile(path):  # unlike Path.is_file, False for a word that is too long for a name
        fix = "give a launch script, a configuration file, or the arguments of swift rlhf"
        raise SwiftGrpoExtError("no such script", where=words[0], fix=fix)
    if words[1:]:
        what = f"a script is read without arguments: {' '.join(words[1:])[:80]}"
        raise SwiftGrpoExtError(what, where=words[0], fix=_exact(path))
    return runs_of_script(path)


def _exact(path: Path) -> str:
    return f"SWIFT_GRPO_EXT_PREFLIGHT=only bash {path} checks exactly what the shell makes of it"


def run_of(words: Sequence[Word], *, environ: Mapping[str, str] = os.environ) -> Run:
    """The run that a command, or the arguments alone, start in this process's environment and folder."""
    command = command_of(words) or Command(words=tuple(words))
    seen = {**environ, **command.environ}
    return _run(replace(command, environ=seen, folders=(Path.cwd(),)), Launch())


def runs_of_script(path: Path) -> list[Run]:
    """The runs that a launch script starts, each with its variables.

    Raises:
        SwiftGrpoExtError: it cannot be read, or none of its commands could be.
    """
    here = path.resolve().parent
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
        if _OTHER.fullmatch(path.name):
            raise SwiftGrpoExtError("only scripts of bash are read")
        # Its relative paths may lie in any of these folders.
        launch = read_script(text, os.environ, (Path.cwd(), here, here.parent))
        commands = [command for command in launch.commands if command.subcommand in _TRAINS]
        if not commands:
            what = (
                "no swift rlhf command; another program, script or file may start one, which is not followed"
            )
            raise SwiftGrpoExtError(what)
        if len(commands) > _MOST_COMMANDS:
            raise SwiftGrpoExtError("more commands than people write")
    except OSError as error:
        raise SwiftGrpoExtError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except SwiftGrpoExtError as error:
        raise SwiftGrpoExtError(error.what, where=f"{path} {error.where}".strip(), fix=_exact(path)) from None
    return [_run(command, launch) for command in commands]


def _run(command: Command, launch: Launch) -> Run:
    words, more = _with_config(command)
    arguments = parse(words, _kind(command.program, words))
    environ = {**more, **command.environ}
    # A file alone does not say how it is started.
    is_alone = not command.program and _is_config(command.words[0]) and "NPROC_PER_NODE" not in environ
    servers = (server.words for server in launch.commands if server.subcommand == "rollout")
    return Run(
        arguments=arguments,
        environ=Environ(environ, set_by=command.set_by or "the shell that starts it" * is_alone),
        versions={name: installed_version(name) for name in _PACKAGES},
        gpu_memory=memory_of_a_gpu(),
        launch=launch,
        command=command,
        servers=tuple(parse(words, "RolloutArguments") for words in servers),
    )


def _kind(program: str, words: Sequence[Word]) -> str:
    """The argument class of a program; without a program, the class that knows most of the options."""
    if program:
        return host_table.MEGATRON if program == "megatron" else "RLHFArguments"
    flags = {written(word).partition("=")[0] for word in words if written(word).startswith("--")}
    return min(host_table.TRAIN, key=lambda kind: len(flags.difference(host_table.options(kind))))


def _is_config(word: Word) -> bool:
    return written(word).endswith(CONFIG_SUFFIXES)


def _with_config(command: Command) -> tuple[list[Word], dict[str, str]]:
    """The arguments with those of a configuration file in place of the first, and the variables that it sets.

    With Ray on Megatron the file is the word after ``--config``. Arguments after it override its own.
    """
    words = list(command.words)
    texts = list(map(written, words))
    if command.program == "megatron" and "--config" in texts[:-1]:
        at = texts.index("--config")
        words = [words[at + 1], *words[:at], *words[at + 2 :]]
    if not words or not _is_config(words[0]):
        return words, {}
    file, *others = words
    name = written(file)
    path = next((folder / name for folder in command.folders if (folder / name).is_file()), Path(name))
    may_be_written = command.makes_files or not command.folders
    if isinstance(file, Unknown) or (may_be_written and not path.is_file()):
        return [Unknown(name, many=True), *others], {}
    inside, environ = config_words(path.expanduser())
    return [*inside, *others], environ


@cache
def memory_of_a_gpu() -> float:
    """GiB of this machine's first GPU; 0 without a GPU, or if its driver does not report it."""
    with suppress(SwiftGrpoExtError):
        return read_gpus()[0].total
    return 0
