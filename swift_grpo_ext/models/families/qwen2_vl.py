"""Qwen2-VL."""

from __future__ import annotations

from swift_grpo_ext.models.chat_template import chat_template
from swift_grpo_ext.models.families.sizes import QWEN_IDS, QWEN_IMAGE, QWEN_VIDEO, TEXT
from swift_grpo_ext.models.family import Entry, Tiny


def processor(tokenizer: object, _config: object, max_pixels: int) -> object:
    """Patches of 14 pixels."""
    from transformers import Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

    pixels = {"min_pixels": 56 * 56, "max_pixels": max_pixels}
    return Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**pixels),
        chat_template=chat_template(image=QWEN_IMAGE, video=QWEN_VIDEO),
    )


FAMILY = Entry(
    stem="qwen2_vl",
    frame="norm1000",
    tiny={
        "qwen2_vl": Tiny(
            "Qwen2VL",
            {"model_type": "qwen2_vl", "template": "qwen2_vl"},
            {**TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
            {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
            QWEN_IDS,
            processor=processor,
        )
    },
)
