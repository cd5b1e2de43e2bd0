"""MiniCPM-V 4.6: slices of an image, before a language model with recurrent layers."""

from typing import Any

from swift_grpo_ext.models.processors import NO_THOUGHT
from swift_grpo_ext.testing.families.description import Tiny
from swift_grpo_ext.testing.families.sizes import HYBRID, INTERLEAVED, SIGLIP, TEXT

_CHAT = {"system": "", "answer": NO_THOUGHT, "image": "<|image_pad|>\n", "video": "<|video_pad|>\n"}
_NAMED = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "image_start_token": "<image>",
    "image_end_token": "</image>",
    "slice_start_token": "<slice>",
    "slice_end_token": "</slice>",
    "image_id_start_token": "<image_id>",
    "image_id_end_token": "</image_id>",
}


def processor(config: Any, _max_pixels: int) -> dict[str, Any]:
    """Slices of at most 112 pixels a side."""
    sizes = {"scale_resolution": 112, "patch_size": config.vision_config.patch_size}
    return {"image": ("MiniCPMV4_6", sizes), "video": ("MiniCPMV4_6", sizes)}


TINY = {
    "minicpmv4_6": Tiny(
        "MiniCPMV4_6",
        {"model_type": "minicpmv4_6", "template": "minicpmv4_6"},
        {
            **TEXT,
            **HYBRID,
            "model_type": "qwen3_5_text",
            "rope_parameters": {**INTERLEAVED, "partial_rotary_factor": 1.0},
        },
        {**SIGLIP, "image_size": 112},
        {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"},
        named=_NAMED,
        top={"insert_layer_id": 0},
        processor=processor,
        chat=_CHAT,
    )
}
