"""Files and folders that arguments name: whether they are there."""

import re
from collections.abc import Iterator
from pathlib import Path

from swift_grpo_ext.doctor.check.files import drawn
from swift_grpo_ext.doctor.check.rules.table import anywhere, rule
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.doctor.check.unknown import PLUGIN
from swift_grpo_ext.findings import ERROR, WARNING, NotKnownError, Problem


@rule(
    "missing-file",
    ERROR,
    symptoms="FileNotFoundError, or a dataset is looked up on a hub",
    cause="A path that does not exist is taken for a hub id.",
    scope=anywhere,
)
def _missing(run: Run) -> Iterator[Problem]:
    for name in filter(run.arguments.is_known, (*_FILES, *_FOLDERS)):
        folder = name in _FOLDERS
        for file in _folders(run, name) if folder else _files(run, name):
            if run.find(file) is None and not _is_made(run, file, folder=folder):
                yield Problem(f"{file} not found", f"--{name}", _elsewhere(file))


_FILES = (
    "system",
    "external_plugins",
    "custom_register_path",
    "custom_dataset_info",
    "dataset",
    "val_dataset",
)
_FOLDERS = ("adapters", "ref_adapters", "resume_from_checkpoint")
_HERE = ("/", "./", "../", "~")
_DATA = (".jsonl", ".json", ".csv", ".parquet")


def _named(run: Run, name: str) -> list[str]:
    """What an argument names."""
    value = run.arguments.get(name)
    return value if isinstance(value, list) else [value] if isinstance(value, str) and value else []


def _files(run: Run, name: str) -> list[str]:
    """What an argument names that must be a file."""
    names = _named(run, name)
    if name in ("dataset", "val_dataset"):
        files = [drawn(name)[0] for name in names]
        return [file for file in files if file.startswith(_HERE) or file.endswith(_DATA)]
    if name == "system":
        return [name for name in names if name.endswith(".txt")]
    return [name for name in names if name != PLUGIN and not name.lstrip().startswith(("{", "["))]


def _is_made(run: Run, name: str, *, folder: bool) -> bool:
    """Whether the script writes it; another command of the script that comes first may write a folder.

    Raises:
        NotKnownError: A program of the script may write it, or its folder is of another machine.
    """
    if folder and run.launch.commands and run.launch.commands[0] is not run.command:
        return True
    place = Path(re.split(r"[*?[]", name)[0]).expanduser()
    if any(sign in name for sign in "*?[") and place.is_absolute() and not place.exists():
        raise NotKnownError(f"{name}, whose folder is not on this machine")
    if run.command.makes_files:
        raise NotKnownError(f"{name}, which a program of the script may write")
    return False


@rule(
    "model-not-here",
    WARNING,
    symptoms=(
        "ValueError: path: '...' not found",
        "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name'",
    ),
    cause="A model folder that does not exist is refused, or looked up on a hub.",
    scope=anywhere,
)
def _no_model_files(run: Run) -> Iterator[Problem]:
    for name in filter(run.arguments.is_known, ("model", "ref_model", "reward_model", "teacher_model")):
        for folder in _folders(run, name):
            if run.find(folder) is None and not _is_made(run, folder, folder=True):
                fix = "check the path, or download it"
                if "/" not in folder:
                    fix = "a hub's id has an owner: Qwen/..., or check the path"
                yield Problem(f"{folder} is not on this machine", f"--{name}", fix)


def _folders(run: Run, name: str) -> list[str]:
    """What an argument names that can be no id of a hub; checkpoints of a run are called by their steps."""
    folders = []
    for word in _named(run, name):
        local = word.startswith(_HERE) or re.fullmatch(r"checkpoint-\d+", word.rsplit("/", 1)[-1])
        if name == "resume_from_checkpoint" or word.split(":")[0].count("/") != 1 or local:
            folders.append(word)
    return folders


def _elsewhere(name: str) -> str:
    if "," in name:
        return f"separate names by blanks: {name.replace(',', ' ')}"
    return f"leave out the quotes around several names: {name}" if " " in name.strip() else "check the path"
