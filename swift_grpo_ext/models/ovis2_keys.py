"""Names of Ovis2's weights: the original's and transformers' (its convert_ovis2_weights_to_hf.py)."""

import re
from typing import Any

import torch

from swift_grpo_ext.errors import CheckpointError

FIX_OF_CONFIG = "give a folder of an AIDC-AI/Ovis2 checkpoint"
_TOWER = "visual_tokenizer.backbone."
_OWN = "model.vision_tower.transformer."
_BLOCK = f"{_TOWER}trunk.blocks.#."
_LAYER = f"{_OWN}encoder.layers.#."
_LLM = ("llm.model.", "model.language_model.")
_NUMBER = re.compile(r"(?<=\.blocks\.)\d+(?=\.)")

# Original name and names in transformers, without ``.weight`` or ``.bias``; of fused weights all, in order.
RENAMED: dict[str, tuple[str, ...]] = {
    f"{_BLOCK}norm_1": (f"{_LAYER}rms_norm1",),
    f"{_BLOCK}norm_2": (f"{_LAYER}rms_norm2",),
    f"{_BLOCK}attn.qkv": tuple(f"{_LAYER}attention.{name}_proj" for name in "qkv"),
    f"{_BLOCK}attn.proj": (f"{_LAYER}attention.out_proj",),
    f"{_BLOCK}mlp.fc1": (f"{_LAYER}ffn.gate_proj",),
    f"{_BLOCK}mlp.fc2": (f"{_LAYER}ffn.down_proj",),
    f"{_BLOCK}mlp.fc3": (f"{_LAYER}ffn.up_proj",),
    f"{_TOWER}preprocessor.patchifier.proj": (f"{_OWN}embeddings.patch_embedding",),
    f"{_TOWER}preprocessor.patchifier.norm": (f"{_OWN}embeddings.rms_norm",),
    f"{_TOWER}preprocessor.pos_embed": (f"{_OWN}embeddings.position_embedding",),
    f"{_TOWER}trunk.post_trunk_norm": (f"{_OWN}rms_norm",),
    "visual_tokenizer.head.0": ("model.vision_tower.head_linear",),
    "visual_tokenizer.head.1": ("model.vision_tower.head_norm",),
    "vte": ("model.visual_embeddings_table",),
    "llm.lm_head": ("lm_head",),
}


def native_names(original: str) -> tuple[str, ...]:
    """Names in transformers of a weight of the original: three for the fused attention, else one.

    Raises:
        CheckpointError: The original has no such weight.
    """
    if original.startswith(_LLM[0]):
        return (original.replace(*_LLM, 1),)
    number = _NUMBER.search(original)
    whole = f"{original}.weight" if original.endswith(".pos_embed") else original
    stem, _, kind = _NUMBER.sub("#", whole).rpartition(".")
    if stem not in RENAMED or kind not in ("weight", "bias"):
        raise CheckpointError(f"unknown weight {original}", fix="is this an AIDC-AI/Ovis2 checkpoint?")
    return tuple(f"{name}.{kind}".replace("#", number[0] if number else "") for name in RENAMED[stem])


def convert(original: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """A weight of the original as those of transformers.

    Raises:
        CheckpointError: The name is unknown or the shape does not fit.
    """
    names = native_names(original)
    if original.endswith("pos_embed"):
        if tensor.ndim != 3 or tensor.shape[0] != 1:
            raise CheckpointError(f"{original} has shape {tuple(tensor.shape)}, not (1, patches, hidden)")
        tensor = tensor[0]
    if not tensor.ndim or tensor.shape[0] % len(names):
        raise CheckpointError(f"{original} of shape {tuple(tensor.shape)} is not {len(names)} equal parts")
    return {name: part.contiguous() for name, part in zip(names, tensor.chunk(len(names)), strict=True)}


def configuration(original: dict[str, Any]) -> Any:
    """The `transformers.Ovis2Config` of an original config.json.

    Raises:
        CheckpointError: A part is missing or of another kind.
    """
    from transformers import Ovis2Config

    try:
        tokenizer = original["visual_tokenizer_config"]
        text = dict(original["llm_config"])
        tower = tokenizer["backbone_config"]
        sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        vision = {name: tower[name] for name in (*sizes, "image_size", "patch_size")}
        vision |= {name: tokenizer[name] for name in ("vocab_size", "hidden_stride", "tokenize_function")}
        hidden = text["hidden_size"]
        rows = text["vocab_size"]
    except KeyError as error:
        raise CheckpointError(f"config.json lacks {error}", fix=FIX_OF_CONFIG) from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(makes_no_model(error), fix=FIX_OF_CONFIG) from None
    optional = ("num_channels", "rms_norm_eps", "qkv_bias", "attention_dropout")
    vision |= {name: tower[name] for name in optional if name in tower}
    vision["mlp_bias"] = tower.get("mlp_bias", tower.get("use_bias", False))
    tied = bool(text.get("tie_word_embeddings", False)) and not original.get("disable_tie_weight", False)
    text["model_type"] = text.get("model_type", "qwen2")
    try:
        config = Ovis2Config(
            text_config={**text, "tie_word_embeddings": tied},
            vision_config=vision,
            hidden_size=hidden,
            vocab_size=rows,
            tie_word_embeddings=tied,
            architectures=["Ovis2ForConditionalGeneration"],
            torch_dtype=original.get("torch_dtype", "bfloat16"),
        )
    except Exception as error:  # transformers has many kinds of errors for sizes and names that fit no model
        raise CheckpointError(makes_no_model(error), fix=FIX_OF_CONFIG) from None
    made = type(config.text_config).model_type
    if made != text["model_type"]:  # up to transformers 5.16 each became a Qwen2
        what = f"llm_config is of type {text['model_type']}, transformers makes {made}"
        raise CheckpointError(f"config.json makes no model: {what}", fix=FIX_OF_CONFIG)
    return config


def makes_no_model(error: Exception) -> str:
    """What is said of a config.json from which no model can be built."""
    problem = " ".join(f"{type(error).__name__}: {error}".split())[:160]
    return f"config.json makes no model: {problem}"
