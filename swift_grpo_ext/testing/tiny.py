"""Random-weight checkpoints of many families, of 0.1 to 0.4 million parameters, to train on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.models.families import TINY
from swift_grpo_ext.testing.checkpoint import write_checkpoint
from swift_grpo_ext.testing.tokenizer import build_tokenizer, vocabulary_size

if TYPE_CHECKING:
    from transformers import PretrainedConfig

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
    made, folder = TINY[family], Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer(folder, made.tokens, stock=made.stock_vocabulary)
    tokens = {token: tokenizer.convert_tokens_to_ids(token) for token in made.ids.values()}
    rows = vocabulary_size(tokenizer, stock=made.stock_vocabulary)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = tiny_config(family, tokens, vision=vision, top=top, **{"vocab_size": rows, **ends, **text})
    processor = made.processor(tokenizer, config, max_pixels) if made.processor else tokenizer
    return _written(folder, config, processor, made.empty_files, seed=seed, dtype=dtype)


def _written(
    folder: Path, config: PretrainedConfig, processor: object, empty: Sequence[str], *, seed: int, dtype: str
) -> Path:
    import torch
    import transformers

    for name in empty:
        torch.save({}, folder / name)
    return write_checkpoint(
        folder, getattr(transformers, config.architectures[0]), config, processor, seed=seed, dtype=dtype
    )


def tiny_config(
    family: str,
    tokens: Mapping[str, int],
    *,
    vision: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
    pad_token_id: int = 0,
    **text: Any,
) -> Any:
    """The config of a tiny checkpoint.

    Args:
        family: As in `tiny_checkpoint`.
        tokens: Ids of the tokens that the config names.
        vision: As in `tiny_checkpoint`.
        top: As in `tiny_checkpoint`.
        pad_token_id: Begins rows, too.
        **text: Fields of the language model's config.
    """
    import transformers

    made = TINY[family]
    of_text = {"bos_token_id": pad_token_id, "pad_token_id": pad_token_id, **made.text, **text}
    fields: dict[str, Any] = of_text
    if made.vision:
        ids = {name: tokens[token] for name, token in made.ids.items()}
        seen = {**made.vision, **(vision or {})}
        fields = {"text_config": of_text, "vision_config": seen, **ids, **made.top, **(top or {})}
    if made.inside:
        name, around = made.inside
        fields = {name: fields, **around}
    class_name = made.stem + ("ForConditionalGeneration" if made.vision else "ForCausalLM")
    return getattr(transformers, f"{made.stem}Config")(**fields, architectures=[class_name])
