"""Random-weight checkpoints of many families, of 0.1 to 0.4 million parameters, to train on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from swift_grpo_ext.models.families import TINY
from swift_grpo_ext.testing.tokenizer import build_tokenizer, vocabulary_size


def tiny_checkpoint(
    family: str,
    path: str | Path,
    *,
    seed: int = 0,
    dtype: str = "float32",
    stock_vocabulary: bool = False,
    vision: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
    max_pixels: int | None = None,
    **text: Any,
) -> Path:
    """Write a complete checkpoint of a random model; sizes have the names that transformers gives them::

        testing.tiny_checkpoint("qwen3_vl", "tiny", num_hidden_layers=4, vision={"depth": 3})

    Args:
        family: ``model_type`` of a row of docs/families.md, such as ``qwen2_5_vl`` or ``qwen3_5``.
        path: Folder to write; made if missing.
        seed: Of the weights, the same bytes for the same seed and sizes; the global state is left as it was.
        dtype: Name of the torch dtype of the weights.
        stock_vocabulary: Give the special tokens their published ids (``<|image_pad|>`` 151655, ...) and the
            embedding 151936 rows, which ms-swift's own templates may need and ours do not.
        vision: Fields of the tower's config that are other than tiny.
        top: Other fields of the config.
        max_pixels: Most pixels of a resized image, where the processor resizes.
        **text: Fields of the language model's config. ``initializer_range`` (0.02) is the tower's, too.
    """
    made, folder = TINY[family], Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    stock = stock_vocabulary or made.stock_vocabulary
    tokenizer = build_tokenizer(folder, made.tokens, made.named, stock=stock)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    text = {"vocab_size": vocabulary_size(tokenizer, stock=stock), **ends, **text}
    config = tiny_config(family, tokenizer.get_vocab(), vision=vision, top=top, **text)
    pixels = made.max_pixels if max_pixels is None else max_pixels
    processor = made.processor(tokenizer, config, pixels) if made.processor else tokenizer
    _write(folder, config, processor, tokenizer, made.empty_files, seed=seed, dtype=dtype)
    return folder


tiny_qwen2_5_vl = partial(tiny_checkpoint, "qwen2_5_vl")
tiny_ovis2 = partial(tiny_checkpoint, "ovis2")


def tiny_config(
    family: str,
    ids: Mapping[str, int] | None = None,
    *,
    vision: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
    pad_token_id: int = 0,
    **text: Any,
) -> Any:
    """The config of a tiny checkpoint, or of one of any size.

    Args:
        family: As in `tiny_checkpoint`.
        ids: Ids of the special tokens that the config names, or of more; None for the published ones.
        vision: As in `tiny_checkpoint`.
        top: As in `tiny_checkpoint`.
        pad_token_id: Begins rows, too.
        **text: Fields of the language model's config, ``vocab_size`` among them.

    Returns:
        An instance of the family's config class of transformers.
    """
    import transformers

    made = TINY[family]
    ends = {"bos_token_id": pad_token_id, "pad_token_id": pad_token_id}
    fields: dict[str, Any] = {**ends, **made.text, **text}
    if made.vision:
        of_both = {name: text[name] for name in ("initializer_range",) if name in text}
        seen = {**of_both, **made.vision, **(vision or {})}
        around = made.follow(fields, seen) if made.follow else {}
        named = {} if ids is None else {name: _ids_of(tokens, ids) for name, tokens in made.ids.items()}
        beside = {**around, **named, **made.top, **(top or {})}
        fields = {"text_config": fields, "vision_config": seen, **beside}
    if made.inside:
        name, around = made.inside
        fields = {name: fields, **around}
    class_name = made.stem + ("ForConditionalGeneration" if made.vision else "ForCausalLM")
    return getattr(transformers, f"{made.stem}Config")(**fields, architectures=[class_name])


def _ids_of(tokens: str | Sequence[str], ids: Mapping[str, int]) -> int | list[int]:
    return ids[tokens] if isinstance(tokens, str) else [ids[one] for one in tokens]


def _write(
    folder: Path,
    config: Any,
    processor: Any,
    tokenizer: Any,
    empty_files: Sequence[str],
    *,
    seed: int,
    dtype: str,
) -> None:
    import torch
    import transformers

    for name in empty_files:
        torch.save({}, folder / name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, config.architectures[0])(config).to(getattr(torch, dtype))
    ends = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.generation_config = transformers.GenerationConfig(
        do_sample=True, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder, safe_serialization=True)
    processor.save_pretrained(folder)
