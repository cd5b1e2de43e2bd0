"""Sizes of a model from its config.json: the model is built on the meta device, without weights."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from swift_grpo_ext.doctor.plan.setting import ModelShape, VisionShape
from swift_grpo_ext.errors import EnvironmentMismatchError, SwiftGrpoExtError
from swift_grpo_ext.group.pack_memory import text_sizes
from swift_grpo_ext.hugging_face.release import INSTALLED
from swift_grpo_ext.models.families import family_of, tiling_of

# Names of the vision tower's depth in the configs of different families.
_VISION_DEPTH = ("depth", "num_hidden_layers", "num_layers")
_WORDS = {
    "aligner": ("merger", "projector", "aligner", "visual_embeddings_table"),
    "tower": ("visual", "vision", "audio"),
}
# Errors that transformers raises for an unknown type, and for missing or invalid sizes.
_VALUES = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError)


def shape_of(config: Mapping[str, object]) -> ModelShape:
    """Sizes of the model that a config.json describes.

    Raises:
        EnvironmentMismatchError: The installed transformers has no such model.
        SwiftGrpoExtError: No model can be built from it.
    """
    from huggingface_hub.errors import StrictDataclassError

    try:
        return _measured(*_meta_model(dict(config)))
    except (*_VALUES, RuntimeError, ImportError, StrictDataclassError) as error:
        kind = config.get("model_type", "")
        message = " ".join(str(error).split())
        raise SwiftGrpoExtError(
            f"no model of type {kind!r} can be built from this config.json: {message:.200}",
            fix="a model whose class is transformers' own; code of a checkpoint is never run",
        ) from None


def _measured(model: Any, hf_config: Any) -> ModelShape:
    from torch.nn import Linear

    text = hf_config.get_text_config().to_dict()  # attributes that differ by layer cannot be asked for
    counts = dict.fromkeys(("language", "embedding", "head", "tower", "aligner"), 0)
    facts = family_of(hf_config)
    words = {"aligner": facts.aligner, "tower": (*facts.vision_tower, "audio")} if facts else _WORDS
    embedding = model.get_input_embeddings()
    head = model.get_output_embeddings()
    own = {id(getattr(head, "weight", None)): "head", id(getattr(embedding, "weight", None)): "embedding"}
    sizes = getattr(hf_config, "vision_config", None)
    for name, parameter in model.named_parameters():
        counts[own.get(id(parameter)) or _part(name, words)] += parameter.numel()
    lora_sizes = sum(
        module.in_features + module.out_features
        for name, module in model.named_modules()
        if isinstance(module, Linear) and module is not head
        if _part(f"{name}.weight", words) == "language"
    )
    return ModelShape(
        **counts,
        largest=max(sum(p.numel() for p in m.parameters(recurse=False)) for m in model.modules()),
        text=text_sizes(text),
        kv_heads=text.get("num_key_value_heads") or text["num_attention_heads"],
        heads=text["num_attention_heads"],
        lora_sizes=lora_sizes,
        vision=_vision(hf_config.model_type, sizes.to_dict(), hf_config.to_dict()) if sizes else None,
    )


def _meta_model(config: dict[str, object]) -> tuple[Any, Any]:
    import torch
    import transformers
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    kind = str(config.pop("model_type", ""))
    if kind not in CONFIG_MAPPING:
        raise EnvironmentMismatchError(
            f"transformers {INSTALLED} has no model type {kind!r}",
            fix="a model of transformers' own, or a later release; code of a checkpoint is never run",
        )
    hf_config = AutoConfig.for_model(kind, **config)
    hf_config = getattr(hf_config, "thinker_config", hf_config)  # the trained part of an omni model
    if getattr(hf_config, "vision_config", None) is None:
        make: Any = AutoModelForCausalLM.from_config
    elif type(hf_config) in AutoModelForImageTextToText._model_mapping:
        make = AutoModelForImageTextToText.from_config
    else:
        named = type(hf_config).__name__.removesuffix("Config") + "ForConditionalGeneration"
        make = getattr(transformers, named)._from_config
    with torch.device("meta"):
        return make(hf_config, attn_implementation="sdpa"), hf_config


def _part(name: str, words: Mapping[str, Iterable[str]]) -> str:
    """The part of the model that a parameter belongs to, by words in its name."""
    return next((part for part, of_part in words.items() if any(w in name for w in of_part)), "language")


def _vision(kind: str, sizes: Mapping[str, Any], config: Mapping[str, Any]) -> VisionShape:
    whole = {**config, **sizes}
    patch = _int(sizes.get("patch_size"), 14)
    width = sizes.get("embed_dim") or sizes.get("hidden_size") or 0
    tiling = tiling_of(kind)
    tile = (tiling.side or _int(sizes.get("image_size"), 448)) if tiling else 0
    return VisionShape(
        depth=next((sizes[key] for key in _VISION_DEPTH if sizes.get(key)), 0),
        hidden=width,
        intermediate=sizes.get("intermediate_size") or 4 * width,
        patch=patch,
        merge=_merge(whole, patch, tile),
        channels=3 * patch**2 * (sizes.get("temporal_patch_size") or 1),
        tile=tile,
        most_tiles=tiling.most if tiling else 9,
        fixed=whole.get("mm_tokens_per_image") or whole.get("default_output_length") or 0,
    )


def _merge(whole: Mapping[str, Any], patch: int, tile: int) -> int:
    """Patches per side that become one token of the language model."""
    if whole.get("query_num"):  # number of tokens that a resampler makes of a tile
        return round(tile / patch / whole["query_num"] ** 0.5)
    if whole.get("downsample_ratio"):
        return round(1 / whole["downsample_ratio"])
    names = ("hidden_stride", "merge_kernel_size", "spatial_merge_size", "pooling_kernel_size")
    takes_patches = whole.get("vision_feature_select_strategy")  # LLaVA: each patch is a token
    return next(filter(None, (_int(whole.get(name), 0) for name in names)), 1 if takes_patches else 2)


def _int(value: int | Sequence[int] | None, default: int) -> int:
    first = value[0] if isinstance(value, (list, tuple)) else value
    return first if isinstance(first, int) else default
