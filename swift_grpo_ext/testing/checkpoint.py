"""Writes a random-weight model, its generation config and its processor into one folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def write_checkpoint(
    folder: Path, model_class: Any, config: Any, processor: Any, *, seed: int, dtype: str
) -> Path:
    """Write a checkpoint folder as transformers itself would: the same seed gives the same bytes.

    Args:
        folder: Existing folder.
        model_class: A `transformers.PreTrainedModel` subclass.
        config: Its config.
        processor: Its processor, holding the tokenizer and the chat template, or its tokenizer.
        seed: Seed of the random weights; the global random state is left as it was.
        dtype: Name of a torch dtype, such as ``"float32"`` or ``"bfloat16"``.

    Returns:
        ``folder``.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config).to(getattr(torch, dtype))
    model.generation_config = _generation_config(getattr(processor, "tokenizer", processor))
    model.save_pretrained(folder, safe_serialization=True)
    processor.save_pretrained(folder)
    return folder


def _generation_config(tokenizer: PreTrainedTokenizerBase) -> object:
    from transformers import GenerationConfig

    return GenerationConfig(
        do_sample=True,
        eos_token_id=[tokenizer.eos_token_id, tokenizer.pad_token_id],
        pad_token_id=tokenizer.pad_token_id,
    )
