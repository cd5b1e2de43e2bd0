"""The model, its images, which parameters are trained, and by which reference they are held."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from swift_grpo_ext.doctor.check import host_table
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.doctor.plan.catalogue import find_config
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Problem
from swift_grpo_ext.models.families import family_of


@table.on("native-ovis2")
def _native_ovis2(run: Run) -> Iterator[Problem]:
    try:
        config = find_config(run.model) or {}
    except SwiftGrpoExtError as error:
        yield Problem(
            error.what, f"--model {run.arguments.model}", f"modelscope download --model {run.arguments.model}"
        )
        return
    local = "Ovis2ForConditionalGeneration" in (config.get("architectures") or [])
    native = local and str(run.arguments.model).rstrip("/").lower().endswith(("-hf", "_hf"))
    if native and "templates" not in run.parts:
        yield Problem(
            "stock ms-swift has no template for transformers' Ovis2",
            f"--model {run.arguments.model}",
            '--external_plugins "$(swift-grpo-ext path)"',
        )


@table.on("lora-leaves-the-aligner")
def _lora_leaves_the_aligner(run: Run) -> Iterator[Problem]:
    args = run.arguments
    try:
        config = find_config(run.model) or {}
    except SwiftGrpoExtError:
        return  # told by native-ovis2
    facts = family_of(str(config.get("model_type")))
    table_name = facts.lora_skips if facts else ""
    saved = any(table_name in str(name) for name in args.modules_to_save or ())
    if table_name and args.tuner_type == "lora" and args.freeze_aligner is False and not saved:
        what = "LoRA does not train the aligner: it has no linear layer"
        yield Problem(what, "--freeze_aligner false", f"--modules_to_save {table_name}")


@table.on("images-fill-the-prompt")
def _image_tokens(run: Run) -> Iterator[Problem]:
    limit = run.arguments.max_length
    if not limit or run.shape is None or run.shape.vision is None or run.shape.vision.tile:
        return
    pixels = run.max_pixels if run.limits_pixels else _USUAL_PIXELS
    tokens = run.shape.vision.tokens(pixels)
    if tokens >= limit:
        side = run.shape.vision.patch * run.shape.vision.merge
        most = (limit - 256 if limit > 512 else limit // 2) * side**2
        yield Problem(
            f"an image of {pixels} pixels is {tokens} tokens, max_length is {limit}",
            "MAX_PIXELS",
            f"export MAX_PIXELS={most}, or --max_length {-(-(tokens + 256) // 256) * 256}",
        )


_USUAL_PIXELS = 1_003_520  # of a photo; without MAX_PIXELS one may have twelve times as many


@table.on("template-not-found")
def _no_template(run: Run) -> Iterator[Problem]:
    args = run.arguments
    folder = Path(run.model)
    if (
        not args.model
        or args.model_type
        or not (folder / "config.json").is_file()
        or run.has_plugins_of_the_user
    ):
        return
    if (folder / "args.json").is_file() or folder.resolve().name.lower() in host_table.names("model"):
        return
    with suppress(SwiftGrpoExtError):
        architecture = next(iter((find_config(run.model) or {}).get("architectures") or []), "null")
        types = host_table.table()["architectures"].get(architecture, [])
        if len(types) > 1:
            what = f"{architecture} may be {', '.join(types[:6])}{' ...' if len(types) > 6 else ''}"
            yield Problem(what, f"--model {args.model}", f"--model_type {types[0]}")
        elif (
            not types and "templates" not in run.parts and (find_config(run.model) or {}).get("vision_config")
        ):
            what = f"ms-swift knows no model of the architecture {architecture}"
            yield Problem(what, f"--model {args.model}", "--model_type and --template of a like model")


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
