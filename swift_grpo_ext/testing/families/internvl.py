"""InternVL of transformers' own class: several tiles for an image."""

from typing import Any

from swift_grpo_ext.testing.families.description import Tiny
from swift_grpo_ext.testing.families.sizes import SIGLIP, TEXT


def processor(config: Any, _max_pixels: int) -> dict[str, Any]:
    """Tiles."""
    side = dict(zip(("height", "width"), config.vision_config.image_size, strict=True))
    return {
        "image": ("GotOcr2", {"crop_to_patches": True, "max_patches": 4, "size": side}),
        "video": ("InternVL", {"size": side}),
        "image_seq_length": config.image_seq_length,
    }


TINY = {
    "internvl": Tiny(
        "InternVL",
        {"model_type": "internvl", "template": "internvl_hf"},
        {**TEXT, "model_type": "qwen2", "tie_word_embeddings": False},
        {**SIGLIP, "image_size": [56, 56], "patch_size": [14, 14]},
        {"image_token_id": "<IMG_CONTEXT>"},
        named={
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
        top={"image_seq_length": 4},
        processor=processor,
        chat={"system": "", "image": "<IMG_CONTEXT>\n", "video": "<video>\n"},
    )
}
