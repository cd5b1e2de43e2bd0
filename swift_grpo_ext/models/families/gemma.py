"""Gemma 3 and 4: the tokens of an image see each other."""

from __future__ import annotations

from typing import Any

from swift_grpo_ext.models.chat_template import chat_template
from swift_grpo_ext.models.families.sizes import SIGLIP, TEXT
from swift_grpo_ext.models.family import Entry, Tiny

_IDS = {
    "image_token_index": "<image_soft_token>",
    "boi_token_index": "<start_of_image>",
    "eoi_token_index": "<end_of_image>",
}
_IDS_4 = {
    "image_token_id": "<|image|>",
    "boi_token_id": "<|image>",
    "eoi_token_id": "<image|>",
    "video_token_id": "<|video|>",
    "audio_token_id": "<|audio|>",
    "boa_token_id": "<|audio>",
    "eoa_token_index": "<audio|>",
}


def image_blocks(config: Any) -> dict[str, Any]:
    """In which layers they do (``create_masks_for_vision_model`` of both)."""
    if config.model_type == "gemma3":
        return {"image_blocks": "all"}
    seen = getattr(config.get_text_config(), "use_bidirectional_attention", None) == "vision"
    return {"image_blocks": "windows" if seen else "none"}


def processor_3(tokenizer: Any, config: Any, _max_pixels: int) -> Any:
    """Of Gemma 3."""
    from transformers import AutoTokenizer, Gemma3ImageProcessor, Gemma3Processor

    side = config.vision_config.image_size
    named = {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    }
    return Gemma3Processor(
        image_processor=Gemma3ImageProcessor(size={"height": side, "width": side}),
        tokenizer=AutoTokenizer.from_pretrained(tokenizer.name_or_path, extra_special_tokens=named),
        image_seq_length=config.mm_tokens_per_image,
        chat_template=chat_template(image="<start_of_image>"),
    )


def processor_4(tokenizer: Any, config: Any, _max_pixels: int) -> Any:
    """Of Gemma 4: an image has at most 16 tokens, by its shape."""
    from transformers import (
        AutoTokenizer,
        Gemma4AudioFeatureExtractor,
        Gemma4ImageProcessor,
        Gemma4Processor,
        Gemma4VideoProcessor,
    )

    named = {"boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>"}
    named |= {"boa_token": "<|audio>", "eoa_token": "<audio|>", "audio_token": "<|audio|>"}
    vision = config.vision_config
    patches = {"patch_size": vision.patch_size, "pooling_kernel_size": vision.pooling_kernel_size}
    return Gemma4Processor(
        feature_extractor=Gemma4AudioFeatureExtractor(),
        image_processor=Gemma4ImageProcessor(max_soft_tokens=70, **patches),
        tokenizer=AutoTokenizer.from_pretrained(tokenizer.name_or_path, extra_special_tokens=named),
        video_processor=Gemma4VideoProcessor(**patches),
        chat_template=chat_template(image="<|image|>", video="<|video|>"),
    )


FAMILY = Entry(
    stem="gemma",
    frame="norm1000",
    override=image_blocks,
    tiny={
        "gemma4": Tiny(
            "Gemma4",
            {"model_type": "gemma4", "template": "gemma4_nothinking"},
            {
                **TEXT,
                "num_hidden_layers": 3,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
                "sliding_window": 12,
                "global_head_dim": 32,
                "hidden_size_per_layer_input": 8,
                "use_bidirectional_attention": "vision",
            },
            {**SIGLIP, "num_key_value_heads": 2, "head_dim": 16, "pooling_kernel_size": 2},
            _IDS_4,
            ("<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", *_IDS_4.values()),
            processor=processor_4,
        ),
        "gemma3": Tiny(
            "Gemma3",
            {"model_type": "gemma3_vision", "template": "gemma3_vision"},
            {**TEXT, "num_hidden_layers": 3, "sliding_window": 12, "sliding_window_pattern": 2},
            SIGLIP,
            _IDS,
            ("<bos>", "<start_of_turn>", "<end_of_turn>", *_IDS.values()),
            {"mm_tokens_per_image": 4},
            processor_3,
        ),
    },
)
