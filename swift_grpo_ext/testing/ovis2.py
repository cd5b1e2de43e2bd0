"""Random-weight checkpoints of transformers' own `Ovis2ForConditionalGeneration`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.models.chat_template import chat_template
from swift_grpo_ext.testing.checkpoint import write_checkpoint
from swift_grpo_ext.testing.tokenizer import STOCK_SPECIAL_START, build_tokenizer, vocabulary_size

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# The published order, ids 151665 to 151670. ``<image>`` is no token: the processor replaces that text by
# one atom for each image feature, between the indicators.
ATOM_TOKEN = "<IMG_ATOM>"
INDICATOR_TOKENS = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
_STOCK_ATOM = STOCK_SPECIAL_START + 22

CHAT_TEMPLATE = chat_template(image="<image>\n")


def ovis2_config(
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
    visual_vocab_size: int = 64,
    image_size: int = 56,
    patch_size: int = 14,
    hidden_stride: int = 2,
    vocab_size: int = 151936,
    image_token_id: int = _STOCK_ATOM,
    visual_indicator_token_ids: tuple[int, ...] = tuple(range(_STOCK_ATOM + 1, _STOCK_ATOM + 6)),
    eos_token_id: int = STOCK_SPECIAL_START + 2,
    pad_token_id: int = STOCK_SPECIAL_START,
    initializer_range: float = 0.02,
) -> Any:
    """Config of a native Ovis2 of any size; the rest is as in the published checkpoints.

    Published 2B (figures of its config): hidden_size 1536, intermediate_size 8960, num_layers 28, num_heads
    12, num_kv_heads 2, vision_hidden_size 1024, vision_intermediate_size 2816, vision_depth 24,
    vision_num_heads 8, visual_vocab_size 65536, image_size 448.

    Args:
        hidden_size: Width of the Qwen2 language model.
        intermediate_size: Width of the language model's MLP; default twice ``hidden_size``.
        num_layers: Layers of the language model.
        num_heads: Query heads of the language model.
        num_kv_heads: Key and value heads of the language model.
        vision_hidden_size: Width of the vision tower.
        vision_intermediate_size: Width of the vision tower's MLP; default twice ``vision_hidden_size``.
        vision_depth: Layers of the vision tower.
        vision_num_heads: Heads of the vision tower.
        visual_vocab_size: Rows of the visual embedding table, five of them for the indicators.
        image_size: Side of a tile in pixels, a multiple of ``patch_size * hidden_stride``.
        patch_size: Side of a patch in pixels.
        hidden_stride: Patches per side that are merged into one feature.
        vocab_size: Rows of the text embedding.
        image_token_id: Id of ``<IMG_ATOM>``.
        visual_indicator_token_ids: Ids of the five indicator tokens.
        eos_token_id: Id of ``<|im_end|>``.
        pad_token_id: Id of ``<|endoftext|>``.
        initializer_range: Standard deviation of the random weights.

    Returns:
        A `transformers.Ovis2Config`.
    """
    from transformers import Ovis2Config

    text = {
        "model_type": "qwen2",
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size or 2 * hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "max_window_layers": num_layers,
        "initializer_range": initializer_range,
        "rope_theta": 1_000_000.0,
        "bos_token_id": pad_token_id,
        "eos_token_id": eos_token_id,
        "pad_token_id": pad_token_id,
        "tie_word_embeddings": True,
    }
    vision = {
        "hidden_size": vision_hidden_size,
        "intermediate_size": vision_intermediate_size or 2 * vision_hidden_size,
        "num_hidden_layers": vision_depth,
        "num_attention_heads": vision_num_heads,
        "image_size": image_size,
        "patch_size": patch_size,
        "hidden_stride": hidden_stride,
        "vocab_size": visual_vocab_size,
        "num_visual_indicator_tokens": len(visual_indicator_token_ids),
        "initializer_range": initializer_range,
    }
    return Ovis2Config(
        text_config=text,
        vision_config=vision,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        image_token_id=image_token_id,
        visual_indicator_token_ids=list(visual_indicator_token_ids),
        initializer_range=initializer_range,
        architectures=["Ovis2ForConditionalGeneration"],
    )


def tiny_ovis2(
    path: str | Path,
    *,
    seed: int = 0,
    stock_vocabulary: bool = False,
    dtype: str = "float32",
    max_patches: int = 12,
    **sizes: Any,
) -> Path:
    """Write a complete checkpoint of a random native Ovis2: 0.1 M parameters unless the sizes say otherwise.

    Args:
        path: Folder to write; made if missing.
        seed: Seed of the weights. The same seed and sizes give the same bytes.
        stock_vocabulary: Give the special tokens their published ids (``<IMG_ATOM>`` 151665, ...) and the
            embedding 151936 rows.
        dtype: Name of the torch dtype of the weights.
        max_patches: Most tiles that the processor cuts an image into.
        **sizes: Sizes of `ovis2_config`, such as ``hidden_size=128``.

    Returns:
        The folder.
    """
    from transformers import Ovis2ForConditionalGeneration

    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer(folder, (ATOM_TOKEN, *INDICATOR_TOKENS), stock=stock_vocabulary)
    config = ovis2_config(
        vocab_size=vocabulary_size(tokenizer, stock=stock_vocabulary),
        image_token_id=tokenizer.convert_tokens_to_ids(ATOM_TOKEN),
        visual_indicator_token_ids=tuple(tokenizer.convert_tokens_to_ids(list(INDICATOR_TOKENS))),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **sizes,
    )
    processor = _processor(tokenizer, config.vision_config, max_patches)
    return write_checkpoint(folder, Ovis2ForConditionalGeneration, config, processor, seed=seed, dtype=dtype)


def _processor(tokenizer: PreTrainedTokenizerBase, vision: Any, max_patches: int) -> Any:
    from transformers import Ovis2ImageProcessor, Ovis2Processor

    side = vision.image_size
    features_per_side = side // (vision.patch_size * vision.hidden_stride)
    return Ovis2Processor(
        image_processor=Ovis2ImageProcessor(
            crop_to_patches=True, max_patches=max_patches, size={"height": side, "width": side}
        ),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE,
        image_seq_length=features_per_side**2,
    )
