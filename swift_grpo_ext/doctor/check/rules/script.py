"""Variables and the script itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from swift_grpo_ext.doctor.check.arguments import NotKnown
from swift_grpo_ext.doctor.check.launch import PLUGIN
from swift_grpo_ext.doctor.check.rows import drawn
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import nearest
from swift_grpo_ext.findings import Problem
from swift_grpo_ext.settings import PREFIX, Settings

_VARIABLES = table.texts["mistyped-variable"]
KNOWN, _OTHERS = (frozenset(_VARIABLES[part].split()) for part in ("known", "others"))


@table.on("comment-cuts-command")
def _comment(run: Run) -> Iterator[Problem]:
    for cut in run.launch.found.cuts if run.launch else ():
        if cut.reason == "comment":
            yield Problem(
                f"the shell ends the command here: {cut.text:.60}",
                f"line {cut.line}",
                "move the comment above the command",
            )


@table.on("line-cuts-command")
def _line(run: Run) -> Iterator[Problem]:
    reasons = {
        "space": ("a blank stands behind the backslash", "sed -i '{}s/ *$//' on the script"),
        "blank": ("an empty line ends the command", "sed -i '{}d' on the script"),
        "backslash": (
            "the backslash at the end of the line is missing",
            "sed -i '{}s/$/ \\\\/' on the script",
        ),
    }
    for cut in run.launch.found.cuts if run.launch else ():
        if cut.reason in reasons:
            what, fix = reasons[cut.reason]
            yield Problem(f"{what}, the options below it are lost", f"line {cut.line}", fix.format(cut.line))
    if run.launch and run.launch.windows:
        what = (
            "lines end as on Windows: no backslash is the last character, last values get a carriage return"
        )
        yield Problem(what, "", "dos2unix, or sed -i 's/\\r$//' on the script")


@table.on("shell-syntax")
def _syntax(run: Run) -> Iterator[Problem]:
    if run.launch and run.launch.refusal and not run.launch.windows:
        where, _, what = run.launch.refusal.rpartition(": ")
        yield Problem(f"the shell refuses the script: {what}", where, "close the quote or bracket")


@table.on("variable-in-single-quotes")
def _literal(run: Run) -> Iterator[Problem]:
    for name in dict.fromkeys(run.launch.found.literal if run.launch else ()):
        yield Problem(f"${name} stands in single quotes, so it stays as it is written", name, f'"${name}"')


@table.on("variable-not-exported")
def _unexported(run: Run) -> Iterator[Problem]:
    for name in sorted(run.command.unexported if run.command else ()):
        if name in KNOWN or name.startswith(PREFIX):
            yield Problem(
                f"swift does not see {name}", name, f"export {name}=..., or put it before the command"
            )


@table.on("mistyped-variable")
def _mistyped(run: Run) -> Iterator[Problem]:
    known = {*KNOWN, *(PREFIX + name.upper() for name in Settings.model_fields)}
    names = run.launch.found.names - run.launch.used if run.launch else set(run.environ)
    for name in sorted(names):
        if name in known or name in _OTHERS or len(name) < 3:
            continue
        close = nearest(name.upper(), known, cutoff=0.86)
        if close and (name.upper() != close or name != name.upper()):
            yield Problem(f"nobody reads {name}", name, f"export {close}=..., if that is meant")
        elif name.upper().startswith(PREFIX):
            yield Problem(f"no setting is called {name}", name, f"unset {name}")


@table.on("blank-beside-equals")
def _blank(run: Run) -> Iterator[Problem]:
    for cut in run.launch.found.cuts if run.launch else ():
        if cut.reason == "assignment":
            yield Problem(f"a blank stands beside the = of {cut.text}", f"line {cut.line}", cut.text)


@table.on("launcher-of-swift")
def _launcher(run: Run) -> Iterator[Problem]:
    words = run.command.launcher if run.command else ()
    if words[-2:] == ("-m", "swift"):
        yield Problem("the package swift cannot be run as a module", "-m swift", "-m swift.cli.rlhf")
    pairs = zip(("", *words), words[:-1], strict=False) if words[-1:] == ("swift",) else ()
    for before, word in pairs:
        if word in ("torchrun", "deepspeed") and not before.startswith("-"):
            module = "--module" if word == "deepspeed" else "-m"
            what = f"{word} looks for a script called swift, which is a command"
            yield Problem(what, word, f"{word} ... {module} swift.cli.rlhf --rlhf_type grpo ...")


@table.on("missing-file")
def _missing(run: Run) -> Iterator[Problem]:
    args = run.arguments
    named = [
        (name, file)
        for name in (*_FILES, *_FOLDERS)
        if args.known(name)
        for file in (_folders(run, name) if name in _FOLDERS else _files(run, name))
    ]
    for name, file in named:
        if run.find(file) is None and not _is_made(run, file, folder=name in _FOLDERS):
            yield Problem(f"{file} is not there", f"--{name}", _elsewhere(file))


_FILES = ("external_plugins", "custom_register_path", "custom_dataset_info", "dataset", "val_dataset")


def _files(run: Run, name: str) -> list[str]:
    """What an argument names that must be a file."""
    value = run.arguments.get(name)
    names = value if isinstance(value, list) else [value] if value else []
    if name in ("dataset", "val_dataset"):
        return [drawn(one)[0] for one in names if _looks_local(one)]
    return [one for one in names if one != PLUGIN and not one.lstrip().startswith(("{", "["))]


def _is_of_another_machine(name: str) -> bool:
    """A pattern in a folder that is not here: which files it names is seen where the folder is."""
    folder = Path(re.split(r"[*?[]", name)[0]).expanduser()
    return any(sign in name for sign in "*?[") and folder.is_absolute() and not folder.exists()


def _is_made(run: Run, name: str, *, folder: bool) -> bool:
    """Whether the script writes it."""
    if folder and _may_be_made_before(run):
        return True
    if run.launch and any(made.endswith(name.removeprefix("./")) for made in run.launch.found.made):
        return True
    if _is_of_another_machine(name):
        raise NotKnown(f"{name}, whose folder is not on this machine")
    if run.command and run.command.makes_files:
        raise NotKnown(f"{name}, which a program of the script may write")
    return False


@table.on("model-not-here")
def _no_model_files(run: Run) -> Iterator[Problem]:
    for name in filter(run.arguments.known, _MODELS):
        for folder in _folders(run, name):
            if run.find(folder) is None and not _is_made(run, folder, folder=True):
                alone = "/" not in folder
                fix = "a hub's id has an owner: Qwen/..., or check the path" if alone else _DOWNLOAD
                yield Problem(f"{folder} is not on this machine", f"--{name}", fix)


_MODELS = ("model", "ref_model", "reward_model", "teacher_model")
_DOWNLOAD = "check the path, or download it"
_FOLDERS = ("adapters", "ref_adapters", "resume_from_checkpoint")


def _folders(run: Run, name: str) -> list[str]:
    """What an argument names that can be no id of a hub, which is ``owner/name``."""
    value = run.arguments.get(name)
    names = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    return [one for one in names if name == "resume_from_checkpoint" or not _may_be_an_id(one)]


def _may_be_an_id(name: str) -> bool:
    """Whether a hub may know the name; checkpoints of a run are called by their steps."""
    local = name.startswith(("/", "./", "../", "~")) or re.fullmatch(
        r"checkpoint-\d+", name.rsplit("/", 1)[-1]
    )
    return name.split(":")[0].count("/") == 1 and not local


def _may_be_made_before(run: Run) -> bool:
    """Another command of the script comes first, and may write the folder."""
    return bool(run.launch and run.command and run.launch.commands[0] is not run.command)


def _elsewhere(name: str) -> str:
    if "," in name:
        return f"separate names by blanks: {name.replace(',', ' ')}"
    return f"leave out the quotes around several names: {name}" if " " in name.strip() else "check the path"


def _looks_local(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~")) or drawn(name)[0].endswith(
        (".jsonl", ".json", ".csv", ".parquet")
    )
