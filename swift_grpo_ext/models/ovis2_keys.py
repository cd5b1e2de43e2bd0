"""Names of Ovis2's weights: the original's and transformers' (its convert_ovis2_weights_to_hf.py)."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from swift_grpo_ext.errors import CheckpointError

# Parts of an original name and what they are in transformers, in this order.
_RENAMED = (
    (r"^llm\.model\.", "model.language_model."),
    (r"^llm\.lm_head\.", "lm_head."),
    (r"^vte\.", "model.visual_embeddings_table."),
    (r"^visual_tokenizer\.head\.0\.", "model.vision_tower.head_linear."),
    (r"^visual_tokenizer\.head\.1\.", "model.vision_tower.head_norm."),
    (r"^visual_tokenizer\.backbone\.", "model.vision_tower.transformer."),
    (r"\.trunk\.post_trunk_norm\.", ".rms_norm."),
    (r"\.preprocessor\.patchifier\.proj\.", ".embeddings.patch_embedding."),
    (r"\.preprocessor\.patchifier\.norm\.", ".embeddings.rms_norm."),
    (r"\.preprocessor\.pos_embed$", ".embeddings.position_embedding.weight"),
    (r"\.trunk\.blocks\.", ".encoder.layers."),
    (r"\.norm_([12])\.", r".rms_norm\1."),
    (r"\.attn\.proj\.", ".attention.out_proj."),
    (r"\.mlp\.fc1\.", ".ffn.gate_proj."),
    (r"\.mlp\.fc2\.", ".ffn.down_proj."),
    (r"\.mlp\.fc3\.", ".ffn.up_proj."),
)


def native_names(original: str) -> tuple[str, ...]:
    """Names in transformers of a weight of the original: three for the fused attention, else one.

    Raises:
        CheckpointError: The original has no such weight.
    """
    name = original
    for part, native in _RENAMED:
        name = re.sub(part, native, name)
    if name == original:
        raise CheckpointError(f"unknown weight {original}", fix="is this an AIDC-AI/Ovis2 checkpoint?")
    if ".attn.qkv." in name:
        return tuple(name.replace(".attn.qkv.", f".attention.{each}_proj.") for each in "qkv")
    return (name,)


def convert(original: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """A weight of the original as those of transformers; their shapes are not checked.

    Raises:
        CheckpointError: The name is unknown.
    """
    names = native_names(original)
    if original.endswith("pos_embed"):
        tensor = tensor.flatten(0, -2)  # of (1, patches, hidden)
    parts = tensor.tensor_split(len(names)) if len(names) > 1 else (tensor,)
    return dict(zip(names, parts, strict=True))


_FIX = "give a folder of an AIDC-AI/Ovis2 checkpoint"
_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "image_size",
    "patch_size",
    "vocab_size",
    "hidden_stride",
    "tokenize_function",
)
_OPTIONAL = ("num_channels", "rms_norm_eps", "qkv_bias", "attention_dropout", "mlp_bias")


def empty_model(original: dict[str, Any]) -> Any:
    """The `transformers.Ovis2ForConditionalGeneration` of an original config.json: weights have shapes alone.

    Raises:
        CheckpointError: A part is missing or of another kind.
    """
    from transformers import Ovis2Config, Ovis2ForConditionalGeneration

    with _says_what_is_wrong():
        try:
            tokenizer, text = original["visual_tokenizer_config"], original["llm_config"]
            tower = {**tokenizer, **tokenizer["backbone_config"]}
            tower.setdefault("mlp_bias", tower.get("use_bias", False))
            vision = {name: tower[name] for name in _SIZES}
            hidden, rows = text["hidden_size"], text["vocab_size"]
        except KeyError as error:
            raise CheckpointError(f"config.json lacks {error}", fix=_FIX) from None
        vision |= {name: tower[name] for name in _OPTIONAL if name in tower}
        tied = bool(text.get("tie_word_embeddings", False)) and not original.get("disable_tie_weight", False)
        kind = text.get("model_type", "qwen2")
        config = Ovis2Config(
            text_config={**text, "model_type": kind, "tie_word_embeddings": tied},
            vision_config=vision,
            hidden_size=hidden,
            vocab_size=rows,
            tie_word_embeddings=tied,
            architectures=["Ovis2ForConditionalGeneration"],
            torch_dtype=original.get("torch_dtype", "bfloat16"),
        )
        made = type(config.text_config).model_type
        if made != kind:  # up to transformers 5.16 each became a Qwen2
            what = f"config.json makes no model: llm_config is of type {kind}, transformers makes {made}"
            raise CheckpointError(what, fix=_FIX)
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes that fit no tensor
            return Ovis2ForConditionalGeneration(config)


@contextmanager
def _says_what_is_wrong() -> Iterator[None]:
    """Make one line of the many kinds of errors that transformers has for sizes that fit no model.

    Raises:
        CheckpointError: That line.
    """
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        problem = " ".join(f"config.json makes no model: {type(error).__name__}: {error}".split())
        raise CheckpointError(problem[:190], fix=_FIX) from None
