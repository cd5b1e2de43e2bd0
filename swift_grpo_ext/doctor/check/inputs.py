"""What is to be checked: the words of a command line, a launch script, or a configuration file."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import psutil

from swift_grpo_ext.doctor.check import host_table
from swift_grpo_ext.doctor.check.arguments import parse
from swift_grpo_ext.doctor.check.environment import Environ
from swift_grpo_ext.doctor.check.files import CONFIG_SUFFIXES, config_words
from swift_grpo_ext.doctor.check.launch import Command, Launch
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.doctor.check.script import read_script
from swift_grpo_ext.doctor.check.words import is_known, opened
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.versions import installed_version

_PACKAGES = """
    ms-swift transformers trl peft accelerate deepspeed torch torchvision msgspec nvidia-cublas-cu12
    vllm flash-attn kernels
    """
_MOST_BYTES = 2**20
_OF_MEGATRON = ("--tensor_model_parallel_size", "--pipeline_model_parallel_size", "--global_batch_size")
_NO_SHELL = (".py", ".ipynb", ".bat", ".cmd", ".ps1", ".toml", ".jsonl", ".md")


def runs(words: Sequence[str], *, gpu_memory: float = 0) -> list[Run]:
    """The runs that these words start."""
    words = list(words)
    for name in ("swift", "rlhf"):
        words = words[1:] if words[:1] == [name] else words
    if not words:
        fix = "swift-grpo-ext check --model ... (the arguments of swift rlhf), or a launch script"
        raise SwiftGrpoExtError("nothing to check", fix=fix)
    if words[0].startswith("-") or words[0].endswith(CONFIG_SUFFIXES):
        return [run_of(words, gpu_memory=gpu_memory)]
    path = Path(words[0]).expanduser()
    if not path.is_file() or path.suffix in _NO_SHELL:
        what = "no shell script" if path.is_file() else "no such script"
        fix = "give a launch script, a configuration file, or the arguments of swift rlhf"
        raise SwiftGrpoExtError(what, where=words[0], fix=fix)
    return runs_of_script(path, words[1:] or None, gpu_memory=gpu_memory)


def run_of(words: Sequence[str], *, gpu_memory: float = 0, environ: Mapping[str, str] | None = None) -> Run:
    """The run that a command line starts in this process's environment and folder."""
    program = "megatron" if any(word in _OF_MEGATRON for word in words) else "swift"
    command = Command((program, "rlhf", *words), os.environ if environ is None else environ)
    return _run(command, Launch(names=set(command.environ)), gpu_memory, (Path.cwd(),))


def runs_of_script(path: Path, arguments: Sequence[str] | None = None, *, gpu_memory: float = 0) -> list[Run]:
    """The runs that a launch script starts, each with the variables that the script gives it."""
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise SwiftGrpoExtError(what, where=str(path), fix="give a file that you may read") from None
    if arguments and not re.search(r"\$\{?[@*1-9]", text):
        what = f"the script takes no arguments, and is given {' '.join(arguments)[:80]}"
        fix = "check one script at a time, or give all arguments of swift rlhf instead of the script"
        raise SwiftGrpoExtError(what, where=str(path), fix=fix)
    here = path.resolve().parent
    try:
        launch = read_script(
            text,
            os.environ,
            lambda name: _sourced(name, here),
            lambda folder, pattern: _matching(here, folder, pattern),
            path=str(path),
            arguments=arguments,
        )
    except RecursionError:
        raise SwiftGrpoExtError("too deeply nested", where=str(path), fix="simplify the script") from None
    launch.refusal = "" if path.name.lower().startswith("makefile") else syntax_refusal(text)
    commands = launch.all("rlhf")
    if not commands:
        others = ", ".join(dict.fromkeys(" ".join(command.words[:2]) for command in launch.commands))
        what = f"no swift rlhf command{f', only {others}' if others else ''}"
        raise SwiftGrpoExtError(what, where=str(path), fix="give a script that has one")
    return [_run(one, launch, gpu_memory, _folders(one, here)) for one in commands]


def syntax_refusal(text: str) -> str:
    """What bash says to a script that it only reads (``-n``): nothing of it is executed.

    Empty for a script that it takes, for one of another shell, and where there is no bash.
    """
    first, bash = text.split("\n", 1)[0], shutil.which("bash")
    if bash is None or (first.startswith("#!") and not re.search(r"\b(ba|da|k)?sh\b", first)):
        return ""
    command, source = [bash, "--norc", "--noprofile", "-n", "-s"], text.encode("utf-8", "replace")
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


def _sourced(name: str, folder: Path) -> str | None:
    """Text of a file that a script reads, beside it or where check is started."""
    for path in (place / Path(name).expanduser() for place in (Path.cwd(), folder)):
        with suppress(OSError):
            if path.is_file() and path.stat().st_size < _MOST_BYTES:
                return path.read_bytes().decode("utf-8", errors="replace")
    return None


def _matching(here: Path, folder: str, pattern: str) -> list[str]:
    """Files that a pattern stands for, as the shell writes them."""
    from glob import glob

    wide = str(Path(pattern).expanduser())
    for base in (Path.cwd(), here):
        found = glob(wide, root_dir=base / Path(folder).expanduser()) if "**" not in wide else []
        if found:
            return found
    return []


def _run(command: Command, launch: Launch, gpu_memory: float, folders: tuple[Path, ...]) -> Run:
    memory, device = first_gpu()
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
        device=device,
        launch=launch,
        command=command,
        folders=folders,
    )


@lru_cache(maxsize=1)
def _versions() -> dict[str, str | None]:
    return {name: installed_version(name) for name in _PACKAGES.split()}


def _of_model_kwargs(value: object) -> dict[str, str]:
    """Variables that ms-swift sets from ``--model_kwargs '{"max_pixels": 602112}'``."""
    try:
        table = value if isinstance(value, dict) else json.loads(str(value or "{}"))
    except ValueError:
        return {}  # a rule of its own says so
    return {name.upper(): str(one) for name, one in table.items()} if isinstance(table, dict) else {}


def _with_config(
    words: list[str], folders: tuple[Path, ...], launch: Launch
) -> tuple[list[str], dict[str, str]]:
    """The words with those of a configuration file in its place, and the variables that it sets."""
    at = 0 if words and words[0].endswith(CONFIG_SUFFIXES) else None
    if "--config" in words[:-1]:  # ms-swift does not take it so; its words are checked all the same
        at = words.index("--config") + 1
    if at is None or not is_known(words[at]):
        return words, {}
    name, text = words[at], launch.texts.get(words[at])
    there = [folder / name for folder in folders if (folder / name).is_file()]
    if text is None and not there and (not folders or launch.makes_files):
        return [*words[:at], opened(name), *words[at + 1 :]], {}
    inside, environ = config_words(there[0] if there else Path(name).expanduser(), text)
    return [*words[:at], *inside, *words[at + 1 :]], environ


@lru_cache(maxsize=1)
def first_gpu() -> tuple[float, str]:
    """GiB and name of the first GPU; nothing on a machine without one."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0, ""
    query = [program, "--query-gpu=memory.total,name", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
        memory, _, name = done.stdout.strip().split("\n")[0].partition(", ")
        return float(memory) / 1024, name
    return 0, ""
