"""LLaVA-OneVision of transformers' own class."""

from typing import Any

from swift_grpo_ext.testing.families.description import Tiny
from swift_grpo_ext.testing.families.sizes import SIGLIP, TEXT

_PINPOINTS = [[56, 56], [56, 112], [112, 56]]


def processor(config: Any, _max_pixels: int) -> dict[str, Any]:
    """An overview of 4 x 4 patches, and tiles by the shape of the image."""
    side = {"height": config.vision_config.image_size, "width": config.vision_config.image_size}
    return {
        "image": ("LlavaOnevision", {"size": side, "image_grid_pinpoints": config.image_grid_pinpoints}),
        "video": ("LlavaOnevision", {"size": side}),
        "num_image_tokens": (side["height"] // config.vision_config.patch_size) ** 2,
        "vision_feature_select_strategy": config.vision_feature_select_strategy,
    }


TINY = {
    "llava_onevision": Tiny(
        "LlavaOnevision",
        {"model_type": "llava_onevision_hf", "template": "llava_onevision_hf"},
        {**TEXT, "model_type": "qwen2", "tie_word_embeddings": True},
        {**SIGLIP, "model_type": "siglip_vision_model", "vision_use_head": False},
        {"image_token_index": "<image>", "video_token_index": "<video>"},
        # ms-swift's template looks for 151646, whatever the tokenizer says.
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"),
        {"image_grid_pinpoints": _PINPOINTS, "vision_feature_select_strategy": "full"},
        processor,
        {"system": "", "image": "<image>\n", "video": "<video>\n"},
        stock_vocabulary=True,
    )
}
