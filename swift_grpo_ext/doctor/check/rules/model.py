"""The model, its images, which parameters are trained, and by which reference they are held."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from swift_grpo_ext.doctor.check import host_table
from swift_grpo_ext.doctor.check.rules.table import OUR_PLUGIN, option, table, variable
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.doctor.plan.catalogue import find_config
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Problem


@table.on("native-ovis2")
def _native_ovis2(run: Run) -> Iterator[Problem]:
    where = f"--model {run.arguments.model}"
    try:
        config = find_config(run.model) or {}
    except SwiftGrpoExtError as error:
        yield Problem(error.what, where, f"modelscope download {where}")
        return
    local = "Ovis2ForConditionalGeneration" in (config.get("architectures") or [])
    native = local and str(run.arguments.model).rstrip("/").lower().endswith(("-hf", "_hf"))
    if native and "templates" not in run.parts:
        yield Problem("stock ms-swift has no template for transformers' Ovis2", where, OUR_PLUGIN)


@table.on("lora-leaves-the-aligner")
def _lora_leaves_the_aligner(run: Run) -> Iterator[Problem]:
    args = run.arguments
    table_name = run.facts.lora_skips if run.facts else ""
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
        what = f"an image of {pixels} pixels is {tokens} tokens, max_length is {limit}"
        yield variable("MAX_PIXELS", what, f"{most}, or --max_length {-(-(tokens + 256) // 256) * 256}")


_USUAL_PIXELS = 1_003_520  # of a photo; without MAX_PIXELS one may have twelve times as many


@table.on("template-not-found")
def _no_template(run: Run) -> Iterator[Problem]:
    args = run.arguments
    folder = Path(run.model)
    said = args.model_type or (folder / "args.json").is_file() or run.has_plugins_of_the_user
    if not args.model or said or not (folder / "config.json").is_file():
        return
    if folder.resolve().name.lower() in host_table.names("model"):
        return
    with suppress(SwiftGrpoExtError):
        config = find_config(run.model) or {}
        architecture = next(iter(config.get("architectures") or []), "null")
        types = host_table.table()["architectures"].get(architecture, [])
        if len(types) > 1:
            what = f"{architecture} may be {', '.join(types[:6])}{' ...' if len(types) > 6 else ''}"
            yield Problem(what, f"--model {args.model}", f"--model_type {types[0]}")
        elif not types and "templates" not in run.parts and config.get("vision_config"):
            what = f"ms-swift does not know the architecture {architecture}"
            yield Problem(what, f"--model {args.model}", "--model_type and --template of a like model")


_FREEZES = ("freeze_llm", "freeze_vit", "freeze_aligner")
_OF_THE_HOST = ("all-linear", "all-embedding", "all-router")


@table.on("nothing-is-trained")
def _nothing(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if run.shape is not None and run.shape.vision is None:
        return
    activated = bool(args.trainable_parameters or args.trainable_parameters_regex)
    if (args.freeze_parameters_ratio or 0) >= 1 and run.full and not activated:
        yield option("freeze_parameters_ratio", "every parameter is frozen", 0)
    own_choice = not run.full and (args.target_regex or "all-linear" not in (args.target_modules or []))
    continued = not run.full and (args.adapters or args.resume_from_checkpoint)
    if all(args.get(name) for name in _FREEZES) and not (own_choice or continued or activated):
        fix = "--freeze_llm false, or --freeze_vit false, or --freeze_aligner false"
        yield Problem("language model, vision tower and aligner are frozen", "--freeze_llm true", fix)


@table.on("target-modules")
def _targets(run: Run) -> Iterator[Problem]:
    pattern, missing = run.arguments.target_regex, _missing(run)
    if missing is not None and pattern:
        yield from _regex(pattern, run.shape.modules if run.shape else ())
    elif missing and len(missing) == len(run.arguments.target_modules):
        yield from missing


@table.on("target-module-unknown")
def _passed_over(run: Run) -> Iterator[Problem]:
    missing = _missing(run) or []
    if not run.arguments.target_regex and len(missing) < len(run.arguments.target_modules or []):
        yield from missing


def _missing(run: Run) -> list[Problem] | None:
    """Modules that neither ms-swift nor peft, by the end of a module's name, finds; None where none is known.

    The original Ovis2 (remote code) calls its modules otherwise than transformers' class.
    """
    model, modules = str(run.arguments.model).rstrip("/").lower(), run.shape.modules if run.shape else ()
    remote = "ovis" in model and not model.endswith(("-hf", "_hf"))
    if run.full or not modules or (remote and not (Path(run.model) / "config.json").is_file()):
        return None
    ends = " ".join(dict.fromkeys(name.rsplit(".", 1)[-1] for name in modules if name.endswith("_proj")))
    found = []
    for name in run.arguments.target_modules or []:
        if name not in _OF_THE_HOST and not any(f".{module}".endswith(f".{name}") for module in modules):
            meant = "all-linear" if name in ("all_linear", "all") else ends
            fix = name.replace(",", " ") if "," in name else meant
            found.append(option("target_modules", f"the model has no module called {name}", fix))
    return found


def _regex(pattern: str, modules: tuple[str, ...]) -> Iterator[Problem]:
    everything = "--target_modules all-linear"
    try:
        matches = any(re.fullmatch(pattern, module) for module in modules)
    except re.error as error:
        yield Problem(f"not a regular expression: {error}", "--target_regex", everything)
        return
    if not matches:
        end = pattern.lstrip("^.*")
        fix = f"--target_regex '.*{end}'" if end else everything
        yield Problem(f"it matches none of the model's modules, e.g. {modules[-1]}", "--target_regex", fix)
