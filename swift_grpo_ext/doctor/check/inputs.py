"""What is to be checked: the words of a command line, a launch script, or a configuration file."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from swift_grpo_ext.doctor.check.facts.arguments import parse
from swift_grpo_ext.doctor.check.facts.environment import Environ
from swift_grpo_ext.doctor.check.facts.files import CONFIG_SUFFIXES, EXACT, config_words
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.launch.commands import Command, Launch
from swift_grpo_ext.doctor.check.launch.script import read_script
from swift_grpo_ext.doctor.check.unknown import Unknown, Word, written
from swift_grpo_ext.doctor.gpus import read_gpus
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.versions import installed_version

_PACKAGES = """
    ms-swift transformers trl peft accelerate deepspeed torch vllm flash-attn kernels
    """
_OF_MEGATRON = ("--tensor_model_parallel_size", "--pipeline_model_parallel_size", "--global_batch_size")
# What is started, and is not a script of bash.
_OTHER_PROGRAMS = (".py", ".ipynb", ".fish", ".ps1", ".bat", ".cmd", ".mk")
_NOT_STARTED = (".toml", ".jsonl", ".md")


def runs(words: Sequence[str], *, gpu_memory: float = 0) -> list[Run]:
    """The runs that these words start: arguments of ``swift rlhf``, or a script or a configuration file.

    Raises:
        SwiftGrpoExtError: there is no such file, or nothing in it could be read.
    """
    words = list(words)
    for name in ("swift", "rlhf"):
        words = words[1:] if words[:1] == [name] else words
    if not words:
        fix = "swift-grpo-ext check --model ... (the arguments of swift rlhf), or a launch script"
        raise SwiftGrpoExtError("nothing to check", fix=fix)
    if words[0].startswith("-") or words[0].endswith(CONFIG_SUFFIXES):
        return [run_of(words, gpu_memory=gpu_memory)]
    path = Path(words[0]).expanduser()
    if not path.is_file() or path.suffix in _NOT_STARTED:
        what = "not a launch script" if path.is_file() else "no such script"
        fix = "give a launch script, a configuration file, or the arguments of swift rlhf"
        raise SwiftGrpoExtError(what, where=words[0], fix=fix)
    if words[1:]:
        what = f"what a script makes of its arguments ({' '.join(words[1:])[:80]}) is not read"
        raise SwiftGrpoExtError(what, where=words[0], fix=f"check the script alone, or {EXACT}")
    return runs_of_script(path, gpu_memory=gpu_memory)


def run_of(words: Sequence[Word], *, gpu_memory: float = 0, environ: Mapping[str, str] | None = None) -> Run:
    """The run that a command line starts in this process's environment and folder."""
    program = "megatron" if not set(_OF_MEGATRON).isdisjoint(map(written, words)) else "swift"
    command = Command((program, "rlhf", *words), os.environ if environ is None else environ)
    return _run(command, Launch(names=set(command.environ)), gpu_memory, (Path.cwd(),))


def runs_of_script(path: Path, *, gpu_memory: float = 0) -> list[Run]:
    """The runs that a launch script starts, each with the variables that the script gives it.

    Raises:
        SwiftGrpoExtError: it cannot be read, or none of its commands could be.
    """
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise SwiftGrpoExtError(what, where=str(path), fix="give a file that you may read") from None
    if _is_of_another_program(path, text):
        raise SwiftGrpoExtError("only scripts of bash are read", where=str(path), fix=EXACT)
    here = path.resolve().parent
    try:
        launch = read_script(text, os.environ)
    except RecursionError:
        raise SwiftGrpoExtError("too deeply nested", where=str(path), fix="simplify the script") from None
    commands = launch.all("rlhf")
    if not commands:
        what, fix = _why_none(path, launch)
        raise SwiftGrpoExtError(what, where=str(path), fix=fix)
    places = (Path.cwd(), here, here.parent)  # where its relative paths may lie
    return [_run(command, launch, gpu_memory, () if command.moved else places) for command in commands]


def _is_of_another_program(path: Path, text: str) -> bool:
    """Whether a file is started by another program than a shell like bash."""
    first = text.split("\n", 1)[0]
    by_name = path.suffix.lower() in _OTHER_PROGRAMS or path.name.lower() == "makefile"
    return by_name or (first.startswith("#!") and not re.search(r"\b(ba|da|k|z)?sh\b", first))


def _why_none(path: Path, launch: Launch) -> tuple[str, str]:
    """Why no command of a script could be checked, and what to do."""
    if launch.not_followed:
        places = ", ".join(dict.fromkeys(launch.not_followed))
        what = f"swift rlhf may be started by {places}, which is not followed"
        fix = f"SWIFT_GRPO_EXT_PREFLIGHT=only bash {path} checks exactly what the shell makes of it"
        return what, fix
    others = ", ".join(
        dict.fromkeys(" ".join(map(written, command.words[:2])) for command in launch.commands)
    )
    return f"no swift rlhf command{f', only {others}' if others else ''}", "give a script that has one"


def _run(command: Command, launch: Launch, gpu_memory: float, folders: tuple[Path, ...]) -> Run:
    memory = memory_of_a_gpu()
    words, more = _with_config(list(command.arguments), folders, launch)
    arguments = parse(words, host_table.MEGATRON if command.words[0] == "megatron" else "RLHFArguments")
    given = arguments.values.get("model_kwargs")
    return Run(
        arguments=arguments,
        environ=Environ({**more, **command.environ, **_of_model_kwargs(given)}, set_by=command.set_by),
        versions=_versions(),
        gpu_memory=gpu_memory or memory,
        cpu_memory=psutil.virtual_memory().total / 2**30 if memory else 0,
        launch=launch,
        command=command,
        folders=folders,
    )


@lru_cache(maxsize=1)
def _versions() -> dict[str, str | None]:
    return {name: installed_version(name) for name in _PACKAGES.split()}


def _of_model_kwargs(value: str | dict[str, Any] | None) -> dict[str, str]:
    """Variables that ms-swift sets from ``--model_kwargs '{"max_pixels": 602112}'``."""
    try:
        table = json.loads(value) if isinstance(value, str) and value else value
    except ValueError:
        return {}  # a rule of its own says so
    return {name.upper(): str(number) for name, number in table.items()} if isinstance(table, dict) else {}


def _with_config(
    words: list[Word], folders: tuple[Path, ...], launch: Launch
) -> tuple[list[Word], dict[str, str]]:
    """The words with those of a configuration file in place of the first, and the variables that it sets."""
    name, *others = words or ("",)
    if not isinstance(name, str) or not name.endswith(CONFIG_SUFFIXES):
        return words, {}
    here = [folder / name for folder in folders if (folder / name).is_file()]
    if not here and (not folders or launch.makes_files):
        return [Unknown(name, many=True), *others], {}
    table, environ = config_words(here[0] if here else Path(name).expanduser())
    given = {written(word).partition("=")[0].replace("-", "_") for word in others}
    options = {f"--{flag}": values for flag, values in table.items()}
    inside = [[flag, *values] for flag, values in options.items() if flag.replace("-", "_") not in given]
    return [*chain(*inside), *others], environ


@lru_cache(maxsize=1)
def memory_of_a_gpu() -> float:
    """GiB of this machine's first GPU; 0 where there is none, or its driver does not say it."""
    with suppress(SwiftGrpoExtError):
        return read_gpus()[0].total
    return 0
