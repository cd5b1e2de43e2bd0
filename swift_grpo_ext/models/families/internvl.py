"""InternVL of transformers' own class: several tiles for an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swift_grpo_ext.models.chat_template import chat_template
from swift_grpo_ext.models.families.sizes import SIGLIP, TEXT
from swift_grpo_ext.models.family import Entry, Tiny

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def processor(tokenizer: object, config: PretrainedConfig, _max_pixels: int) -> object:
    """Tiles."""
    from transformers import GotOcr2ImageProcessor, InternVLProcessor, InternVLVideoProcessor

    side = dict(zip(("height", "width"), config.vision_config.image_size, strict=True))
    return InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(crop_to_patches=True, max_patches=4, size=side),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=side),
        image_seq_length=config.image_seq_length,
        chat_template=chat_template(system="", image="<IMG_CONTEXT>\n", video="<video>\n"),
    )


FAMILY = Entry(
    stem="internvl",
    frame="norm1000",
    tiny={
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
        )
    },
)
