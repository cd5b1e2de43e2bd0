"""Names of Ovis2's weights: the original's (remote code) and transformers' own.

Facts from the conversion script in transformers' repository, ``models/ovis2/convert_ovis2_weights_to_hf.py``.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from swift_grpo_ext.errors import CheckpointError

_MEND = "give a folder of an AIDC-AI/Ovis2 checkpoint"
_TOWER = "visual_tokenizer.backbone."
_BLOCK = r"visual_tokenizer\.backbone\.trunk\.blocks\.(\d+)\."
_LAYER = r"model.vision_tower.transformer.encoder.layers.\1."

# Original name (a pattern) and name in transformers. Of fused weights, all names in their order.
RENAMED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (_BLOCK + r"norm_1\.weight", (_LAYER + "rms_norm1.weight",)),
    (_BLOCK + r"norm_2\.weight", (_LAYER + "rms_norm2.weight",)),
    (
        _BLOCK + r"attn\.qkv\.(weight|bias)",
        tuple(_LAYER + rf"attention.{name}_proj.\2" for name in ("q", "k", "v")),
    ),
    (_BLOCK + r"attn\.proj\.(weight|bias)", (_LAYER + r"attention.out_proj.\2",)),
    (_BLOCK + r"mlp\.fc1\.(weight|bias)", (_LAYER + r"ffn.gate_proj.\2",)),
    (_BLOCK + r"mlp\.fc2\.(weight|bias)", (_LAYER + r"ffn.down_proj.\2",)),
    (_BLOCK + r"mlp\.fc3\.(weight|bias)", (_LAYER + r"ffn.up_proj.\2",)),
    (
        re.escape(_TOWER) + r"preprocessor\.patchifier\.proj\.(weight|bias)",
        (r"model.vision_tower.transformer.embeddings.patch_embedding.\1",),
    ),
    (
        re.escape(_TOWER) + r"preprocessor\.patchifier\.norm\.weight",
        ("model.vision_tower.transformer.embeddings.rms_norm.weight",),
    ),
    (
        re.escape(_TOWER) + r"preprocessor\.pos_embed",
        ("model.vision_tower.transformer.embeddings.position_embedding.weight",),
    ),
    (
        re.escape(_TOWER) + r"trunk\.post_trunk_norm\.weight",
        ("model.vision_tower.transformer.rms_norm.weight",),
    ),
    (r"visual_tokenizer\.head\.0\.weight", ("model.vision_tower.head_linear.weight",)),
    (r"visual_tokenizer\.head\.1\.(weight|bias)", (r"model.vision_tower.head_norm.\1",)),
    (r"vte\.weight", ("model.visual_embeddings_table.weight",)),
    (r"llm\.model\.(.+)", (r"model.language_model.\1",)),
    (r"llm\.lm_head\.weight", ("lm_head.weight",)),
)
_PATTERNS = tuple((re.compile(pattern), names) for pattern, names in RENAMED)


def native_names(original: str) -> tuple[str, ...]:
    """Names in transformers of a weight of the original: three for the fused attention, else one.

    Raises:
        CheckpointError: The original has no such weight.
    """
    for pattern, names in _PATTERNS:
        if match := pattern.fullmatch(original):
            return tuple(match.expand(name) for name in names)
    raise CheckpointError(f"unknown weight {original}", fix="is this an AIDC-AI/Ovis2 checkpoint?")


def convert(original: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """A weight of the original as the weights that transformers has for it.

    Args:
        original: Its name.
        tensor: Its values; fused attention ``(3 * hidden, ...)``, positions ``(1, patches, hidden)``.

    Raises:
        CheckpointError: The name is unknown, or the shape does not fit it.
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
        CheckpointError: It lacks a part that an Ovis2 config has.
    """
    from transformers import Ovis2Config

    try:
        tokenizer, text = original["visual_tokenizer_config"], dict(original["llm_config"])
        tower = tokenizer["backbone_config"]
        sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        vision = {name: tower[name] for name in (*sizes, "image_size", "patch_size")}
        vision |= {name: tokenizer[name] for name in ("vocab_size", "hidden_stride", "tokenize_function")}
        hidden, rows = text["hidden_size"], text["vocab_size"]
    except KeyError as error:
        raise CheckpointError(f"config.json lacks {error}", fix=_MEND) from None
    except (TypeError, ValueError) as error:
        raise no_config(error) from None
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
        raise no_config(error) from None
    made = type(config.text_config).model_type
    if made != text["model_type"]:  # up to transformers 5.16 each became a Qwen2
        raise no_config(ValueError(f"llm_config is of type {text['model_type']}, transformers makes {made}"))
    return config


def no_config(error: Exception) -> CheckpointError:
    """The error for a config.json of which no model can be made."""
    problem = " ".join(f"{type(error).__name__}: {error}".split())[:160]
    return CheckpointError(f"config.json makes no model: {problem}", fix=_MEND)
