"""Processors of tiny checkpoints: of a tokenizer, the model's config and the most pixels of an image."""

from __future__ import annotations

from typing import Any

from swift_grpo_ext.models.chat_template import chat_template

QWEN_MEDIA = chat_template(
    image="<|vision_start|><|image_pad|><|vision_end|>", video="<|vision_start|><|video_pad|><|vision_end|>"
)


def qwen2_processor(tokenizer: Any, _config: Any, max_pixels: int) -> Any:
    """Of Qwen2-VL."""
    from transformers import Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

    pixels = {"min_pixels": 56 * 56, "max_pixels": max_pixels}
    return Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**pixels),
        chat_template=QWEN_MEDIA,
    )


def qwen3_processor(tokenizer: Any, _config: Any, max_pixels: int) -> Any:
    """Of Qwen3-VL and Qwen3.5: patches of 16 pixels."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(patch_size=16, min_pixels=32 * 32, max_pixels=max_pixels),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(),
        chat_template=QWEN_MEDIA,
    )


def internvl_processor(tokenizer: Any, config: Any, _max_pixels: int) -> Any:
    """Of InternVL: tiles, and its tokens by the names that it asks for."""
    from transformers import AutoTokenizer, GotOcr2ImageProcessor, InternVLProcessor, InternVLVideoProcessor

    side = dict(zip(("height", "width"), config.vision_config.image_size, strict=True))
    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tokenizer = AutoTokenizer.from_pretrained(tokenizer.name_or_path, extra_special_tokens=named)
    return InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(crop_to_patches=True, max_patches=4, size=side),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=side),
        image_seq_length=config.image_seq_length,
        chat_template=chat_template(image="<IMG_CONTEXT>\\n", video="<video>\\n"),
    )


def glm_processor(tokenizer: Any, _config: Any, max_pixels: int) -> Any:
    """Of GLM-4.1V to 4.6V."""
    from transformers import Glm4vImageProcessor, Glm4vProcessor, Glm4vVideoProcessor

    size = {"shortest_edge": 56 * 56, "longest_edge": max_pixels}
    return Glm4vProcessor(
        image_processor=Glm4vImageProcessor(size=size),
        tokenizer=tokenizer,
        video_processor=Glm4vVideoProcessor(size=size),
        chat_template=chat_template(
            image="<|begin_of_image|><|image|><|end_of_image|>",
            video="<|begin_of_video|><|video|><|end_of_video|>",
        ),
    )


def gemma_processor(tokenizer: Any, config: Any, _max_pixels: int) -> Any:
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
