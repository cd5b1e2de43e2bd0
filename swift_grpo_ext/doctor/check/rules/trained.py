"""Which parameters are trained, and by which reference they are held."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem

_FREEZES = ("freeze_llm", "freeze_vit", "freeze_aligner")
_OF_THE_HOST = ("all-linear", "all-embedding", "all-router")


@table.on("nothing-is-trained")
def _nothing(run: Run) -> Iterator[Problem]:
    args = run.arguments
    text_only = run.shape is not None and run.shape.vision is None
    if text_only:
        return
    if (args.freeze_parameters_ratio or 0) >= 1 and run.full and not _activated(run):
        yield Problem("every parameter is frozen", "--freeze_parameters_ratio", "--freeze_parameters_ratio 0")
    own_choice = not run.full and (args.target_regex or "all-linear" not in (args.target_modules or []))
    continued = not run.full and (args.adapters or args.resume_from_checkpoint)
    if all(args.get(name) for name in _FREEZES) and not (own_choice or continued or _activated(run)):
        fix = "--freeze_llm false, or --freeze_vit false, or --freeze_aligner false"
        yield Problem("language model, vision tower and aligner are frozen", "--freeze_llm true", fix)


def _activated(run: Run) -> bool:
    return bool(run.arguments.trainable_parameters or run.arguments.trainable_parameters_regex)


@table.on("target-modules")
def _targets(run: Run) -> Iterator[Problem]:
    args, shape = run.arguments, run.shape
    names = args.target_modules or []
    if run.full or shape is None or _has_other_names(run):
        return
    if args.target_regex:
        yield from _regex(args.target_regex, shape.modules)
        return
    missing = [name for name in names if not _is_there(name, shape.modules)]
    for name in missing if len(missing) == len(args.target_modules or []) else []:
        yield Problem(f"the model has no module called {name}", "--target_modules", _nearest(run, name))


@table.on("target-module-unknown")
def _passed_over(run: Run) -> Iterator[Problem]:
    args, shape = run.arguments, run.shape
    names = args.target_modules or []
    if run.full or shape is None or args.target_regex or _has_other_names(run):
        return
    missing = [name for name in names if not _is_there(name, shape.modules)]
    for name in missing if len(missing) < len(names) else []:
        yield Problem(f"the model has no module called {name}", "--target_modules", _nearest(run, name))


def _is_there(name: str, modules: tuple[str, ...]) -> bool:
    """Whether the host, or peft by the end of a module's name, finds it."""
    return name in _OF_THE_HOST or any(module == name or module.endswith(f".{name}") for module in modules)


def _nearest(run: Run, name: str) -> str:
    if "," in name:
        return f"--target_modules {name.replace(',', ' ')}"
    return (
        "--target_modules all-linear" if name in ("all_linear", "all") else f"--target_modules {_ends(run)}"
    )


def _has_other_names(run: Run) -> bool:
    """The original Ovis2 (remote code) calls its modules otherwise than transformers' class."""
    if run.shape is not None and not run.shape.modules:
        return True
    name = str(run.arguments.model).rstrip("/").lower()
    remote = "ovis" in name and not name.endswith(("-hf", "_hf"))
    return remote and not (Path(run.model) / "config.json").is_file()


def _regex(pattern: str, modules: tuple[str, ...]) -> Iterator[Problem]:
    try:
        matches = any(re.fullmatch(pattern, module) for module in modules)
    except re.error as error:
        yield Problem(f"no regular expression: {error}", "--target_regex", "--target_modules all-linear")
        return
    if not matches:
        what = f"it matches none of the model's modules, e.g. {modules[-1]}"
        yield Problem(
            what,
            "--target_regex",
            f"--target_regex '.*{shown}'"
            if (shown := pattern.lstrip("^.*"))
            else "--target_modules all-linear",
        )


def _ends(run: Run) -> str:
    """Last parts of the names of the language model's linear layers."""
    modules = run.shape.modules if run.shape else ()
    ends = dict.fromkeys(name.rsplit(".", 1)[-1] for name in modules if name.endswith("_proj"))
    return " ".join(ends)
