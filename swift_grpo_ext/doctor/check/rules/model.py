"""The model, its images, which parameters are trained, and by which reference they are held."""

import re
from collections.abc import Iterator
from pathlib import Path

from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules.table import (
    OUR_PLUGIN,
    fault,
    option,
    rule,
    variable,
    where_no_row_is_seen,
)
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.doctor.plan.arithmetic import rounded_up
from swift_grpo_ext.doctor.plan.models import find_config, published, published_name
from swift_grpo_ext.doctor.plan.setting import USUAL_PIXELS
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import ERROR, WARNING, Problem


@rule(
    "native-ovis2",
    ERROR,
    symptoms=(
        "is not supported because no suitable `model_type` was found.",
        "Unrecognized configuration class ... for this kind of AutoModel: AutoModelForCausalLM",
    ),
    cause=(
        "Stock ms-swift knows the remote-code Ovis2 only; transformers' own class is registered "
        "by our plugin."
    ),
    reports="C1",
)
def _native_ovis2(run: Run) -> Iterator[Problem]:
    where = f"--model {run.arguments.model}"
    try:
        find_config(run.model)
    except SwiftGrpoExtError as error:
        yield Problem(error.what, where, f"modelscope download {where}")
        return
    only_ours = run.family and run.family.host_model_type not in host_table.names("model_type")
    if run.family and only_ours and not _is_remote_code(run) and "templates" not in run.parts:
        what = f"stock ms-swift has no template for transformers' {run.family.architecture}"
        yield Problem(what, where, OUR_PLUGIN)


def _is_remote_code(run: Run) -> bool:
    """Whether an id of a hub is that of remote code, where transformers' own class has another id (-hf)."""
    name = published_name(run.model)
    if name is None or (Path(run.model) / "config.json").is_file():
        return False
    has_two = published()[name]["id"].endswith("-hf")
    return has_two and not run.model.rstrip("/").lower().endswith(("-hf", "_hf"))


def _table_of_the_aligner(run: Run) -> str:
    """The embeddings that LoRA leaves, where they are to be trained and are not saved whole."""
    args = run.arguments
    table_name = run.family.lora_skips if run.family else ""
    saved = any(table_name in str(name) for name in args.modules_to_save or ())
    trained = decided(args.freeze_aligner) is False
    return table_name if args.tuner_type == "lora" and trained and not saved else ""


fault(
    "lora-leaves-the-aligner",
    WARNING,
    _table_of_the_aligner,
    "LoRA does not train the aligner: it has no linear layer",
    "--freeze_aligner false",
    "--modules_to_save {}",
    symptoms="the aligner of Ovis2 does not train with LoRA and --freeze_aligner false",
    cause="The aligner of Ovis2 is a table of embeddings, and LoRA adapts linear layers.",
)


@rule(
    "images-fill-the-prompt",
    WARNING,
    symptoms=(
        "rows are dropped or prompts contain image tokens and no text",
        "Image features and image tokens do not match",
    ),
    cause="Truncation keeps every image token, so a large image leaves no room for the question.",
    reports="C4",
    scope=where_no_row_is_seen,
)
def _image_tokens(run: Run) -> Iterator[Problem]:
    limit = run.arguments.max_length
    vision = run.shape.vision if run.shape else None
    if not limit or vision is None or vision.tile:
        return
    pixels = run.max_pixels if run.limits_pixels else USUAL_PIXELS
    tokens = vision.tokens(pixels)
    if tokens >= limit:
        most = (limit - 256 if limit > 512 else limit // 2) * (vision.patch * vision.merge) ** 2
        what = f"an image of {pixels} pixels is {tokens} tokens, max_length is {limit}"
        yield variable("MAX_PIXELS", what, f"{most}, or --max_length {rounded_up(tokens + 256)}")


_FREEZES = ("freeze_llm", "freeze_vit", "freeze_aligner")
_OF_THE_HOST = ("all-linear", "all-embedding", "all-router")


@rule(
    "nothing-is-trained",
    ERROR,
    symptoms=(
        "AssertionError: modules: []",
        "ValueError: optimizer got an empty parameter list",
        "IndexError: list index out of range, when the optimizer is made",
        "element 0 of tensors does not require grad and does not have a grad_fn",
    ),
    cause="The vision tower and the aligner are frozen by default; with --freeze_llm true nothing is left.",
    reports="A8",
)
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


@rule(
    "target-modules",
    ERROR,
    symptoms=(
        "ValueError: Target modules {...} not found in the base model.",
        "ValueError: No modules were targeted for adaptation.",
    ),
    cause="LoRA looks for modules by the end of their names, after the model is loaded.",
)
def _targets(run: Run) -> Iterator[Problem]:
    pattern = run.arguments.target_regex
    missing = _missing(run)
    if missing is not None and pattern:
        yield from _regex(pattern, run.shape.modules if run.shape else ())
    elif missing and len(missing) == len(run.arguments.target_modules):
        yield from missing


@rule(
    "target-module-unknown",
    WARNING,
    symptoms="a module named in --target_modules gets no adapter",
    cause="As long as one name of the list is found, peft passes over the others in silence.",
)
def _passed_over(run: Run) -> Iterator[Problem]:
    missing = _missing(run) or []
    if not run.arguments.target_regex and len(missing) < len(run.arguments.target_modules or []):
        yield from missing


def _missing(run: Run) -> list[Problem] | None:
    """Modules that neither ms-swift nor peft, by the end of a module's name, finds; None where none is known.

    Remote code calls its modules otherwise than transformers' class.
    """
    modules = run.shape.modules if run.shape else ()
    if run.full or not modules or _is_remote_code(run):
        return None
    ends = " ".join(dict.fromkeys(name.rsplit(".", 1)[-1] for name in modules if name.endswith("_proj")))
    missing = []
    for name in run.arguments.target_modules or []:
        if name not in _OF_THE_HOST and not any(f".{module}".endswith(f".{name}") for module in modules):
            meant = "all-linear" if name in ("all_linear", "all") else ends
            fix = name.replace(",", " ") if "," in name else meant
            missing.append(option("target_modules", f"the model has no module called {name}", fix))
    return missing


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


fault(
    "reference-without-adapter",
    WARNING,
    lambda run: (
        run.arguments.adapters
        and not run.arguments.resume_from_checkpoint
        and not run.arguments.ref_adapters
        and run.arguments.beta
        and not run.full
        and run.arguments.adapters[0]
    ),
    "the reference lacks the adapter that training starts from",
    "--adapters",
    "--ref_adapters {}, or --beta 0",
    symptoms="kl starts far above 0 when training goes on from an SFT adapter",
    cause="With LoRA the reference is the model without adapters, so the KL term pulls the policy "
    "back behind its SFT, unless --ref_adapters names the same adapter.",
)
fault(
    "reference-never-synced",
    WARNING,
    lambda run: (
        run.arguments.sync_ref_model
        and (
            (not run.arguments.beta and "there is no reference at --beta 0")
            or (not run.full and "LoRA's reference is the base model")
        )
    ),
    "{}, so nothing is synced",
    "--sync_ref_model",
    "--sync_ref_model false",
    symptoms="--sync_ref_model true has no effect",
    cause="With LoRA the reference is the model without its adapter, and at --beta 0 there is "
    "none: there is no second model to copy the weights to.",
)


fault(
    "zero3-device-map",
    ERROR,
    lambda run: decided(run.arguments.device_map) is not None and run.stage == 3 and run.arguments.device_map,
    "ZeRO-3 shards the model, --device_map {} places it",
    "--device_map",
    "--deepspeed zero3, without --device_map",
    symptoms="DeepSpeed Zero-3 is not compatible with passing a `device_map`.",
    cause="Under ZeRO-3 each rank holds a shard of every weight, so nothing is left to place.",
)
fault(
    "zero3-quantized",
    ERROR,
    lambda run: (
        run.stage == 3
        and (run.arguments.quant_method or "bnb") == "bnb"
        and (run.arguments.quant_method or run.arguments.quant_bits)
    ),
    "ZeRO-3 cannot shard weights that bitsandbytes has packed",
    "--quant_bits",
    "--deepspeed ext_zero2 with QLoRA, or ZeRO-3 without --quant_method",
    symptoms=(
        "RuntimeError: ... only Tensors of floating point dtype can require gradients, with QLoRA and ZeRO-3",
        "ValueError: .to is not supported for 4-bit or 8-bit bitsandbytes models",
    ),
    cause="bitsandbytes packs weights into bytes with a state beside them; ZeRO-3 partitions the "
    "bytes, loses the state, and the weight sync to vLLM gathers nothing usable.",
)
