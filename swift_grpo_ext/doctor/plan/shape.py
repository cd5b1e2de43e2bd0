"""Sizes of a model, from its config.json alone: it is built on the meta device, which holds no weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.group.pack_memory import TextSizes, text_sizes
from swift_grpo_ext.models.families import family_of

# Where the sizes of the vision tower stand in the configs of different families.
_VISION_DEPTH = ("depth", "num_hidden_layers", "num_layers")
_TOWER_WORDS = ("visual", "vision", "audio")
_ALIGNER_WORDS = ("merger", "projector", "aligner", "visual_embeddings_table")
# What transformers raises for a type that it does not know, and for sizes that are missing or no sizes.
_REFUSALS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    ImportError,
)
# Families that cut an image into tiles of ``image_size``, with the most tiles of their processors.
_MOST_TILES = {"ovis2": 9, "internvl": 12, "llava_onevision": 9}
_SMALL = 100_000  # stage3_param_persistence_threshold of our presets


@dataclass(frozen=True)
class VisionShape:
    """Sizes of a vision tower.

    Attributes:
        depth: Layers.
        hidden: Width.
        intermediate: Width of the MLP.
        patch: Side of a patch in pixels.
        merge: Patches per side that become one token of the language model.
        channels: Values of one patch in ``pixel_values``.
        vocabulary: Visual words that each token is a mixture of (Ovis2); 0 if there are none.
        tile: Side of a tile in pixels where images are cut into tiles; 0 where they are resized.
        most_tiles: Most tiles of an image, without the overview.
        fixed: Tokens of every image, whatever its size (Gemma 3); 0 if they depend on it.
    """

    depth: int
    hidden: int
    intermediate: int
    patch: int
    merge: int
    channels: int
    vocabulary: int = 0
    tile: int = 0
    most_tiles: int = 9
    fixed: int = 0

    def tokens(self, pixels: int) -> int:
        """Language model tokens of an image of so many pixels; with tiles, the overview image included."""
        if self.fixed:
            return self.fixed
        if not self.tile:
            return max(1, pixels // (self.patch * self.merge) ** 2)
        per_tile = (self.tile // (self.patch * self.merge)) ** 2
        tiles = min(self.most_tiles, max(1, -(-pixels // self.tile**2)))
        return per_tile * (tiles + (tiles > 1))


@dataclass(frozen=True)
class ModelShape:
    """Parameter counts and widths of a model.

    Attributes:
        language: Parameters of the language model's layers and final norm.
        embedding: Parameters of the token embedding.
        head: Parameters of the output layer; 0 if it shares the embedding's.
        tower: Parameters of the towers (vision, audio) without the aligner.
        aligner: Parameters between tower and language model.
        largest: Parameters of the largest single module.
        small: Parameters in tensors of at most 100,000 elements.
        text: Widths of the language model.
        kv_heads: Key and value heads.
        heads: Query heads.
        linears: (in, out) of every linear layer inside the language model's layers.
        vision: The vision tower, or None.
        modules: Names of all linear layers and embeddings, as ms-swift's model has them.
    """

    language: int
    embedding: int
    head: int
    tower: int
    aligner: int
    largest: int
    small: int
    text: TextSizes
    kv_heads: int
    heads: int
    linears: tuple[tuple[int, int], ...]
    vision: VisionShape | None
    modules: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """All parameters, shared ones once."""
        return self.language + self.embedding + self.head + self.tower + self.aligner

    @property
    def in_linears(self) -> int:
        """Parameters of the language model that 4-bit and 8-bit loading can shrink."""
        return sum(inputs * outputs for inputs, outputs in self.linears)

    def lora(self, rank: int) -> int:
        """Parameters of LoRA on every linear layer of the language model."""
        return sum(rank * (inputs + outputs) for inputs, outputs in self.linears)

    def trainable(
        self, *, full: bool, rank: int, freeze_vit: bool = True, freeze_aligner: bool = True, llm: bool = True
    ) -> int:
        """Parameters that the optimizer sees; ``llm``: the language model is not frozen."""
        if not full:
            return self.lora(rank)
        vision = (0 if freeze_vit else self.tower) + (0 if freeze_aligner else self.aligner)
        return (self.language + self.embedding + self.head if llm else 0) + vision


def shape_of(config: Mapping[str, object]) -> ModelShape:
    """Sizes of the model that a config.json describes.

    Args:
        config: Content of a config.json.

    Raises:
        SwiftGrpoExtError: transformers does not know the model, or the config lacks a size.
    """
    from huggingface_hub.errors import StrictDataclassError

    try:
        return _measured(*_meta_model(dict(config)))
    except (*_REFUSALS, StrictDataclassError) as error:
        kind, message = config.get("model_type", ""), " ".join(str(error).split())
        raise SwiftGrpoExtError(
            f"no model of type {kind!r} can be built from this config.json: {message:.200}",
            fix="models with remote code cannot be planned; a family of transformers can",
        ) from None


def _measured(model: Any, hf_config: Any) -> ModelShape:
    text = hf_config.get_text_config()
    counts = dict.fromkeys(("language", "embedding", "head", "tower", "aligner"), 0)
    part_of = _sorter(hf_config)
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    small = 0
    for name, parameter in model.named_parameters():
        counts[part_of(name, parameter, embedding, head)] += parameter.numel()
        small += parameter.numel() if parameter.numel() <= _SMALL else 0
    return ModelShape(
        **counts,
        largest=max(sum(p.numel() for p in m.parameters(recurse=False)) for m in model.modules()),
        small=small,
        text=text_sizes(text),
        kv_heads=getattr(text, "num_key_value_heads", None) or text.num_attention_heads,
        heads=text.num_attention_heads,
        linears=tuple(_linears(model, part_of, head)),
        vision=_vision(hf_config),
        modules=tuple(name for name, module in model.named_modules() if _is_adapted(module)),
    )


def _meta_model(config: dict[str, object]) -> tuple[Any, Any]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    kind = config.pop("model_type", "")
    hf_config = AutoConfig.for_model(kind, **config)
    hf_config = getattr(hf_config, "thinker_config", hf_config)  # of an omni model, the part that is trained
    with torch.device("meta"):
        if type(hf_config).__name__ == "Qwen2_5OmniThinkerConfig":
            from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Thinker

            return Thinker._from_config(hf_config, attn_implementation="sdpa"), hf_config
        has_vision = getattr(hf_config, "vision_config", None) is not None
        auto = AutoModelForImageTextToText if has_vision else AutoModelForCausalLM
        return auto.from_config(hf_config, attn_implementation="sdpa"), hf_config


def _sorter(config: object) -> Any:
    """A function that says to which part of the model a parameter belongs."""
    facts = family_of(config)
    towers = facts.vision_tower if facts else _TOWER_WORDS
    aligners = facts.aligner if facts else _ALIGNER_WORDS

    def part(name: str, parameter: Any, embedding: Any, head: Any) -> str:
        if parameter is getattr(embedding, "weight", None):
            return "embedding"
        if parameter is getattr(head, "weight", None):
            return "head"
        if any(word in name for word in aligners):
            return "aligner"
        return "tower" if any(word in name for word in towers) else "language"

    return part


def _is_adapted(module: object) -> bool:
    """Whether LoRA can be put on the module itself."""
    import torch

    return isinstance(module, (torch.nn.Linear, torch.nn.Embedding, torch.nn.Conv2d, torch.nn.Conv3d))


def _linears(model: Any, part_of: Any, head: Any) -> Any:
    import torch

    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or module is head:
            continue
        if part_of(f"{name}.weight", module.weight, None, None) == "language":
            yield module.in_features, module.out_features


def _vision(config: Any) -> VisionShape | None:
    vision = getattr(config, "vision_config", None)
    if vision is None:
        return None
    sizes = vision.to_dict()
    whole = {**config.to_dict(), **sizes}
    patch = _int(sizes.get("patch_size"), 14)
    words = sizes.get("hidden_stride")  # Ovis2
    tiles = _MOST_TILES.get(config.model_type, 0)
    merge = round(1 / whole["downsample_ratio"]) if whole.get("downsample_ratio") else 0
    width = sizes.get("embed_dim") or sizes.get("hidden_size") or 0
    unmerged = config.model_type in ("llava_onevision", "llava")
    return VisionShape(
        depth=next((sizes[key] for key in _VISION_DEPTH if sizes.get(key)), 0),
        hidden=width,
        intermediate=sizes.get("intermediate_size") or 4 * width,
        patch=patch,
        merge=words or merge or whole.get("spatial_merge_size") or (1 if unmerged else 2),
        channels=3 * patch**2 * (sizes.get("temporal_patch_size") or 1),
        vocabulary=sizes.get("vocab_size") or 0 if words else 0,
        tile=_int(sizes.get("image_size"), 448) if tiles else 0,
        most_tiles=tiles or 9,
        fixed=whole.get("mm_tokens_per_image") or 0,
    )


def _int(value: object, default: int) -> int:
    if isinstance(value, (list, tuple)):
        value = value[0]
    return value if isinstance(value, int) else default
