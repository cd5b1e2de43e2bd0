"""Variables and the script itself."""

import re
from collections.abc import Iterator
from pathlib import Path

from swift_grpo_ext.doctor.check.files import drawn
from swift_grpo_ext.doctor.check.rules.table import table, variable
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.doctor.check.unknown import PLUGIN
from swift_grpo_ext.errors import nearest
from swift_grpo_ext.findings import NotKnownError, Problem
from swift_grpo_ext.settings import PREFIX, Settings

_VARIABLES = table.texts["mistyped-variable"]
KNOWN, _OTHERS = (frozenset(_VARIABLES[part].split()) for part in ("known", "others"))


def _cuts(run: Run, *reasons: str) -> Iterator[Problem]:
    """Places where the shell reads something else than was meant, for some of the reasons."""
    for cut in run.launch.cuts:
        if cut.reason in reasons:
            what, fix = (text.format(cut) for text in _CUTS[cut.reason])
            yield Problem(what, f"line {cut.line}", fix)


_LOST = ", the options below it are lost"
_CUTS = {
    "comment": ("the shell ends the command here: {0.text:.60}", "move the comment above the command"),
    "assignment": ("a blank stands beside the = of {0.text}", "{0.text}"),
    "space": (f"a blank stands behind the backslash{_LOST}", "sed -i '{0.line}s/ *$//' on the script"),
    "blank": (f"an empty line ends the command{_LOST}", "sed -i '{0.line}d' on the script"),
    "backslash": (f"the line ends without a backslash{_LOST}", "sed -i '{0.line}s/$/ \\\\/' on the script"),
}
table.on("comment-cuts-command")(lambda run: _cuts(run, "comment"))
table.on("blank-beside-equals")(lambda run: _cuts(run, "assignment"))


@table.on("line-cuts-command")
def _line(run: Run) -> Iterator[Problem]:
    yield from _cuts(run, "space", "blank", "backslash")
    if run.launch.windows:
        what = "lines end as on Windows: no backslash is the last sign, last values get a carriage return"
        yield Problem(what, "", "dos2unix, or sed -i 's/\\r$//' on the script")


@table.on("shell-syntax")
def _syntax(run: Run) -> Iterator[Problem]:
    if run.launch.refusal and not run.launch.windows:
        where, _, what = run.launch.refusal.rpartition(": ")
        yield Problem(f"the shell refuses the script: {what}", where, "close the quote or bracket")


@table.on("variable-in-single-quotes")
def _literal(run: Run) -> Iterator[Problem]:
    for name in dict.fromkeys(run.launch.literal):
        yield Problem(f"${name} stands in single quotes, so it stays as it is written", name, f'"${name}"')


@table.on("variable-not-exported")
def _unexported(run: Run) -> Iterator[Problem]:
    for name in sorted(run.command.unexported):
        if name in KNOWN or name.startswith(PREFIX):
            yield variable(name, f"swift does not see {name}", "..., or put it before the command")


@table.on("mistyped-variable")
def _mistyped(run: Run) -> Iterator[Problem]:
    known = {*KNOWN, *(PREFIX + name.upper() for name in Settings.model_fields)}
    for name in sorted(run.launch.names - run.launch.used):
        if name in known or name in _OTHERS or len(name) < 3:
            continue
        close = nearest(name.upper(), known, cutoff=0.86)
        if close and (name.upper() != close or name != name.upper()):
            yield Problem(f"{name} is not a known variable", name, f"export {close}=..., if that is meant")
        elif name.upper().startswith(PREFIX):
            yield Problem(f"{name} is not a setting of this package", name, f"unset {name}")


@table.on("launcher-of-swift")
def _launcher(run: Run) -> Iterator[Problem]:
    words = run.command.launcher
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
    for name in filter(run.arguments.known, (*_FILES, *_FOLDERS)):
        folder = name in _FOLDERS
        for file in _folders(run, name) if folder else _files(run, name):
            if run.find(file) is None and not _is_made(run, file, folder=folder):
                yield Problem(f"{file} not found", f"--{name}", _elsewhere(file))


_FILES = ("external_plugins", "custom_register_path", "custom_dataset_info", "dataset", "val_dataset")
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
        files = [drawn(one)[0] for one in names]
        return [file for file in files if file.startswith(_HERE) or file.endswith(_DATA)]
    return [one for one in names if one != PLUGIN and not one.lstrip().startswith(("{", "["))]


def _is_made(run: Run, name: str, *, folder: bool) -> bool:
    """Whether the script writes it; another command of the script that comes first may write a folder."""
    if folder and run.launch.commands and run.launch.commands[0] is not run.command:
        return True
    if any(made.endswith(name.removeprefix("./")) for made in run.launch.made):
        return True
    place = Path(re.split(r"[*?[]", name)[0]).expanduser()
    if any(sign in name for sign in "*?[") and place.is_absolute() and not place.exists():
        raise NotKnownError(f"{name}, whose folder is not on this machine")
    if run.command.makes_files:
        raise NotKnownError(f"{name}, which a program of the script may write")
    return False


@table.on("model-not-here")
def _no_model_files(run: Run) -> Iterator[Problem]:
    for name in filter(run.arguments.known, ("model", "ref_model", "reward_model", "teacher_model")):
        for folder in _folders(run, name):
            if run.find(folder) is None and not _is_made(run, folder, folder=True):
                fix = "check the path, or download it"
                if "/" not in folder:
                    fix = "a hub's id has an owner: Qwen/..., or check the path"
                yield Problem(f"{folder} is not on this machine", f"--{name}", fix)


def _folders(run: Run, name: str) -> list[str]:
    """What an argument names that can be no id of a hub; checkpoints of a run are called by their steps."""
    found = []
    for one in _named(run, name):
        local = one.startswith(_HERE) or re.fullmatch(r"checkpoint-\d+", one.rsplit("/", 1)[-1])
        if name == "resume_from_checkpoint" or one.split(":")[0].count("/") != 1 or local:
            found.append(one)
    return found


def _elsewhere(name: str) -> str:
    if "," in name:
        return f"separate names by blanks: {name.replace(',', ' ')}"
    return f"leave out the quotes around several names: {name}" if " " in name.strip() else "check the path"
