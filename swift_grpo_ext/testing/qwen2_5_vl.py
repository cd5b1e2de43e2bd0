"""Random-weight checkpoints of `Qwen2_5_VLForConditionalGeneration`, from tiny to published shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swift_grpo_ext.models.chat_template import chat_template
from swift_grpo_ext.models.families.sizes import QWEN_IDS, QWEN_IMAGE, QWEN_VIDEO
from swift_grpo_ext.testing.checkpoint import write_checkpoint
from swift_grpo_ext.testing.tokenizer import STOCK_SPECIAL_START, build_tokenizer, vocabulary_size

# The prompt of the host's ``qwen2_5_vl`` template, which knows one system message and closes every turn.
CHAT_TEMPLATE = chat_template(image=QWEN_IMAGE, video=QWEN_VIDEO)


def qwen2_5_vl_config(
    *,
    hidden_size: int = 64,
    intermediate_size: int | None = None,
    num_layers: int = 2,
    num_heads: int = 2,
    num_kv_heads: int = 1,
    vision_hidden_size: int = 32,
    vision_intermediate_size: int | None = None,
    vision_depth: int = 2,
    vision_num_heads: int = 2,
    vocab_size: int = 151936,
    token_ids: dict[str, int] | None = None,
    eos_token_id: int = STOCK_SPECIAL_START + 2,
    pad_token_id: int = STOCK_SPECIAL_START,
    initializer_range: float = 0.02,
    tie_word_embeddings: bool = True,
) -> object:
    """Config of a Qwen2.5-VL of any size; the rest is as in the published checkpoints.

    Published 3B (figures of its config): hidden_size 2048, intermediate_size 11008, num_layers 36, num_heads
    16, num_kv_heads 2, vision_hidden_size 1280, vision_intermediate_size 3420, vision_depth 32,
    vision_num_heads 16, tie_word_embeddings True.

    Args:
        hidden_size: Width of the language model; its heads have ``hidden_size / num_heads`` channels, a
            multiple of 8.
        intermediate_size: Width of the language model's MLP; default twice ``hidden_size``.
        num_layers: Layers of the language model.
        num_heads: Query heads of the language model.
        num_kv_heads: Key and value heads of the language model.
        vision_hidden_size: Width of the vision tower; its heads have a multiple of 4 channels.
        vision_intermediate_size: Width of the vision tower's MLP; default twice ``vision_hidden_size``.
        vision_depth: Layers of the vision tower; every eighth and the last see the whole image.
        vision_num_heads: Heads of the vision tower.
        vocab_size: Rows of the embedding.
        token_ids: Ids of the vision tokens by config field, where they differ from the published ones.
        eos_token_id: Id of ``<|im_end|>``.
        pad_token_id: Id of ``<|endoftext|>``.
        initializer_range: Standard deviation of the random weights.
        tie_word_embeddings: Share the weights of embedding and output.

    Returns:
        A `transformers.Qwen2_5_VLConfig`.
    """
    from transformers import Qwen2_5_VLConfig

    text = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size or 2 * hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "max_window_layers": num_layers,
        "initializer_range": initializer_range,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": _mrope_section(hidden_size // num_heads)},
        "bos_token_id": pad_token_id,
        "eos_token_id": eos_token_id,
        "pad_token_id": pad_token_id,
        "tie_word_embeddings": tie_word_embeddings,
    }
    vision = {
        "depth": vision_depth,
        "hidden_size": vision_hidden_size,
        "intermediate_size": vision_intermediate_size or 2 * vision_hidden_size,
        "num_heads": vision_num_heads,
        "out_hidden_size": hidden_size,
        "fullatt_block_indexes": sorted({*range(7, vision_depth, 8), vision_depth - 1}),
        "initializer_range": initializer_range,
    }
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=tie_word_embeddings,
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        **(token_ids or {}),
    )


def tiny_qwen2_5_vl(
    path: str | Path,
    *,
    seed: int = 0,
    stock_vocabulary: bool = False,
    dtype: str = "float32",
    min_pixels: int = 56 * 56,
    max_pixels: int = 1280 * 28 * 28,
    **sizes: Any,
) -> Path:
    """Write a complete checkpoint of a random Qwen2.5-VL: 0.1 M parameters unless the sizes say otherwise.

    Args:
        path: Folder to write; made if missing.
        seed: Seed of the weights. The same seed and sizes give the same bytes.
        stock_vocabulary: Give the special tokens their published ids (``<|image_pad|>`` 151655, ...) and the
            embedding 151936 rows, which the host's own template needs and ours does not.
        dtype: Name of the torch dtype of the weights.
        min_pixels: Least pixels of a resized image.
        max_pixels: Most pixels of a resized image.
        **sizes: Sizes of `qwen2_5_vl_config`, such as ``hidden_size=128``.

    Returns:
        The folder.
    """
    from transformers import Qwen2_5_VLForConditionalGeneration

    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer(folder, stock=stock_vocabulary)
    ids = {field: tokenizer.convert_tokens_to_ids(token) for field, token in QWEN_IDS.items()}
    config = qwen2_5_vl_config(
        vocab_size=vocabulary_size(tokenizer, stock=stock_vocabulary),
        token_ids=ids,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **sizes,
    )
    processor = _processor(tokenizer, min_pixels, max_pixels)
    return write_checkpoint(
        folder, Qwen2_5_VLForConditionalGeneration, config, processor, seed=seed, dtype=dtype
    )


def _mrope_section(head_dim: int) -> list[int]:
    """Share of the rotary channel pairs for time, height and width: a quarter, then the rest halved.

    With 128 channels that is the published (16, 24, 24).
    """
    time = head_dim // 8
    height = (head_dim // 2 - time) // 2
    return [time, height, head_dim // 2 - time - height]


def _processor(tokenizer: object, min_pixels: int, max_pixels: int) -> Any:
    from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    pixels = {"min_pixels": min_pixels, "max_pixels": max_pixels}
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**pixels),
        chat_template=CHAT_TEMPLATE,
    )
