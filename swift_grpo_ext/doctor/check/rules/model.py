"""The model and its images."""

from __future__ import annotations

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
