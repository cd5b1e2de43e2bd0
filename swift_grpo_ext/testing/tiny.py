"""Random-weight checkpoints of many families, of 0.1 to 0.4 million parameters, to train on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swift_grpo_ext.models.families import TINY, Tiny
from swift_grpo_ext.testing.checkpoint import write_checkpoint
from swift_grpo_ext.testing.tokenizer import build_tokenizer, vocabulary_size

MAX_PIXELS = 256 * 32 * 32


def tiny_checkpoint(
    family: str,
    path: str | Path,
    *,
    seed: int = 0,
    dtype: str = "float32",
    vision: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
    max_pixels: int = MAX_PIXELS,
    **text: Any,
) -> Path:
    """Write a complete checkpoint of a random model.

    Args:
        family: A key of `swift_grpo_ext.models.families.TINY`.
        path: Folder to write; made if missing.
        seed: Seed of the weights.
        dtype: Name of the torch dtype of the weights.
        vision: Fields of the tower's config that are other than tiny.
        top: Other fields of the config.
        max_pixels: Most pixels of a resized image, where the processor resizes.
        **text: Fields of the language model's config, such as ``num_hidden_layers=4``.

    Returns:
        The folder.
    """
    import transformers

    made, folder = TINY[family], Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer(folder, made.tokens, stock=made.stock_vocabulary)
    class_name = made.stem + ("ForConditionalGeneration" if made.vision else "ForCausalLM")
    fields = {
        **_fields(made, tokenizer, text, {**made.vision, **(vision or {})}),
        **made.top,
        **(top or {}),
    }
    if made.inside:
        name, around = made.inside
        fields = {name: fields, **around}
    config = getattr(transformers, f"{made.stem}Config")(**fields, architectures=[class_name])
    processor = made.processor(tokenizer, config, max_pixels) if made.processor else tokenizer
    model_class = getattr(transformers, class_name)
    return write_checkpoint(folder, model_class, config, processor, seed=seed, dtype=dtype)


def _fields(made: Tiny, tokenizer: Any, text: Mapping[str, Any], vision: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a config: those of the language model, or both parts with the ids of this tokenizer."""
    of_text = {
        "vocab_size": vocabulary_size(tokenizer, stock=made.stock_vocabulary),
        "bos_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        **made.text,
        **text,
    }
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in made.ids.items()}
    return {"text_config": of_text, "vision_config": dict(vision), **ids} if made.vision else of_text
