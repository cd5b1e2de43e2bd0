"""What is to be checked: the words of a command line, a launch script, or a configuration file."""

import json
import os
import re
import shutil
import subprocess
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
# What is started, and is not a script of the shell.
_OTHER_PROGRAMS = {
    ".py": "a Python program",
    ".ipynb": "a notebook",
    ".fish": "a script of the fish shell",
    ".ps1": "a script of PowerShell",
    ".bat": "a script of Windows",
    ".cmd": "a script of Windows",
    ".mk": "a makefile",
}
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
    if other := _other_program(path, text):
        raise SwiftGrpoExtError(f"{other} is not read", where=str(path), fix=EXACT)
    here = path.resolve().parent
    try:
        launch = read_script(text, os.environ)
    except RecursionError:
        raise SwiftGrpoExtError("too deeply nested", where=str(path), fix="simplify the script") from None
    launch.refusal = syntax_refusal(text)
    commands = launch.all("rlhf")
    if not commands:
        what, fix = _why_none(path, launch)
        raise SwiftGrpoExtError(what, where=str(path), fix=fix)
    return [_run(command, launch, gpu_memory, _folders(command, here)) for command in commands]


def _other_program(path: Path, text: str) -> str:
    """What a file is that is started, and not by a shell that we read; empty for a shell script."""
    first = text.split("\n", 1)[0]
    if path.name.lower() == "makefile":
        return _OTHER_PROGRAMS[".mk"]
    if first.startswith("#!") and not re.search(r"\b(ba|da|k|z)?sh\b", first):
        return f"a script for {first[2:].split()[-1].rsplit('/', 1)[-1]}" if first[2:].split() else ""
    return _OTHER_PROGRAMS.get(path.suffix.lower(), "")


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


def syntax_refusal(text: str) -> str:
    """What bash says to a script that it only reads (``-n``): nothing of it is executed.

    Empty for a script that it takes, for one of another shell, and where there is no bash.
    """
    first = text.split("\n", 1)[0]
    bash = shutil.which("bash")
    if bash is None or (first.startswith("#!") and not re.search(r"\b(ba|da|k)?sh\b", first)):
        return ""
    command = [bash, "--norc", "--noprofile", "-n", "-s"]
    source = text.encode("utf-8", "replace")
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, input=source, capture_output=True, timeout=10, check=False)
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[0].split(": ", 1)[-1] if done.returncode and lines else ""
    return ""


def _folders(command: Command, here: Path) -> tuple[Path, ...]:
    """Where a command's relative paths may lie; none where that is not known."""
    if command.folder is None:
        return ()
    return tuple(base / Path(command.folder).expanduser() for base in (Path.cwd(), here, here.parent))


def _run(command: Command, launch: Launch, gpu_memory: float, folders: tuple[Path, ...]) -> Run:
    memory = memory_of_a_gpu()
    words, more = _with_config(list(command.arguments), folders, launch)
    arguments = parse(words, host_table.MEGATRON if command.words[0] == "megatron" else "RLHFArguments")
    given = arguments.values.get("model_kwargs")
    unread = "" if command.complete else " and ".join(launch.unread)
    return Run(
        arguments=arguments,
        environ=Environ({**more, **command.environ, **_of_model_kwargs(given)}, set_by=unread),
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
    """The words with those of a configuration file in its place, and the variables that it sets.

    ms-swift takes the file as its first word; behind --config, which it refuses, it is read all the same.
    """
    texts = list(map(written, words))
    at = texts.index("--config") + 1 if "--config" in texts[:-1] else 0
    name = words[at] if words else ""
    if not isinstance(name, str) or not (at or name.endswith(CONFIG_SUFFIXES)):
        return words, {}
    before, behind = words[:at], words[at + 1 :]
    here = [folder / name for folder in folders if (folder / name).is_file()]
    if not here and (not folders or launch.makes_files):
        return [*before, Unknown(name, many=True), *behind], {}
    table, environ = config_words(here[0] if here else Path(name).expanduser())
    given = {text.partition("=")[0].replace("-", "_") for text in texts[at + 1 :]}
    options = {f"--{flag}": values for flag, values in table.items()}
    inside = [[flag, *values] for flag, values in options.items() if flag.replace("-", "_") not in given]
    return [*before, *chain(*inside), *behind], environ


@lru_cache(maxsize=1)
def memory_of_a_gpu() -> float:
    """GiB of this machine's first GPU; 0 where there is none, or its driver does not say it."""
    with suppress(SwiftGrpoExtError):
        return read_gpus()[0].total
    return 0
