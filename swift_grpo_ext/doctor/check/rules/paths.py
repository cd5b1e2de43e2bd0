"""Files and folders that arguments name: whether they are there."""

import re
from collections.abc import Iterable, Iterator

from swift_grpo_ext.doctor.check.facts.files import drawn
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import anywhere, rule
from swift_grpo_ext.doctor.check.unknown import PLUGIN
from swift_grpo_ext.findings import ERROR, WARNING, NotKnownError, Problem

_FILES = (
    "system",
    "external_plugins",
    "custom_register_path",
    "custom_dataset_info",
    "dataset",
    "val_dataset",
)
_CHECKPOINTS = ("adapters", "ref_adapters", "resume_from_checkpoint")
_MODELS = ("model", "ref_model", "reward_model", "teacher_model")
_HERE = ("/", "./", "../", "~")
_DATA = (".jsonl", ".json", ".csv", ".parquet")


@rule(
    "missing-file",
    ERROR,
    symptoms="FileNotFoundError, or a dataset is looked up on a hub",
    cause="A path that does not exist is taken for a hub id.",
    scope=anywhere,
)
def _missing(run: Run) -> Iterator[Problem]:
    for name, path in _absent(run, (*_FILES, *_CHECKPOINTS)):
        yield Problem(f"{path} not found", f"--{name}", _elsewhere(path))


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
    for name, path in _absent(run, _MODELS):
        fix = (
            "check the path, or download it"
            if "/" in path
            else "a hub's id has an owner: Qwen/..., or check the path"
        )
        yield Problem(f"{path} is not on this machine", f"--{name}", fix)


def _absent(run: Run, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Paths that arguments name, with the argument, where nothing is and nothing will be."""
    for name in filter(run.arguments.is_known, names):
        value = run.arguments.get(name)
        for word in value if isinstance(value, list) else [value]:
            path = drawn(word)[0] if word and name in ("dataset", "val_dataset") else word
            if not isinstance(path, str) or not _is_path(name, path) or run.find(path) is not None:
                continue
            if not _is_made(run, path, folder=name not in _FILES):
                yield name, path


def _is_path(name: str, word: str) -> bool:
    """Whether a word of an argument can only be a path; checkpoints of a run are called by their steps."""
    match name:
        case "system":
            return word.endswith(".txt")
        case "dataset" | "val_dataset":
            return word.startswith(_HERE) or word.endswith(_DATA)
        case "external_plugins" | "custom_register_path" | "custom_dataset_info":
            return word != PLUGIN and not word.lstrip().startswith(("{", "["))
        case "resume_from_checkpoint":
            return bool(word)
    is_checkpoint = re.fullmatch(r"checkpoint-\d+", word.rsplit("/", 1)[-1]) is not None
    has_no_owner = word.split(":")[0].count("/") != 1
    return bool(word) and (has_no_owner or word.startswith(_HERE) or is_checkpoint)


def _is_made(run: Run, name: str, *, folder: bool) -> bool:
    """Whether the script writes it; another command of the script that comes first may write a folder.

    Raises:
        NotKnownError: A program of the script may write it, or the script may be one of another machine.
    """
    if folder and run.launch.commands and run.launch.commands[0] is not run.command:
        return True
    if run.command.moved:
        raise NotKnownError(f"{name}, behind a cd")
    if run.command.makes_files:
        raise NotKnownError(f"{name}, which a program of the script may write")
    return False


def _elsewhere(name: str) -> str:
    if "," in name:
        return f"separate names by blanks: {name.replace(',', ' ')}"
    return f"leave out the quotes around several names: {name}" if " " in name.strip() else "check the path"
