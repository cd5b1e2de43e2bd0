"""Qwen2.5-VL, with a template of this package."""

from __future__ import annotations

from typing import Any

from swift_grpo_ext.models.families.qwen2_vl import processor
from swift_grpo_ext.models.families.sizes import QWEN_IDS, TEXT_2, TOWER
from swift_grpo_ext.models.family import Entry, Tiny, VisionFamily

QWEN2_5_VL = VisionFamily(
    family="qwen2_5_vl",
    architecture="Qwen2_5_VLForConditionalGeneration",
    host_model_type="qwen2_5_vl",
    host_template="qwen2_5_vl",
    image_token_id=151655,  # <|image_pad|>
    video_token_id=151656,  # <|video_pad|>
    indicator_token_ids=(151652, 151653),  # <|vision_start|> <|vision_end|>
    vision_tower=("model.visual",),
    aligner=("model.visual.merger",),
    language_model=("model.language_model", "lm_head"),
    frame="pixel_resized",
)


def follow(text: dict[str, Any], vision: dict[str, Any]) -> dict[str, object]:
    """Rotary channel pairs for time (a quarter), height and width (with 128 channels the published 16, 24,
    24); every eighth layer of the tower and the last see the whole image.
    """
    pairs, depth = text["hidden_size"] // text["num_attention_heads"] // 2, vision["depth"]
    time, height = pairs // 4, (pairs - pairs // 4) // 2
    text.setdefault("rope_scaling", {"type": "mrope", "mrope_section": [time, height, pairs - time - height]})
    vision.setdefault("out_hidden_size", text["hidden_size"])
    vision.setdefault("fullatt_block_indexes", sorted({*range(7, depth, 8), depth - 1}))
    return {"tie_word_embeddings": text["tie_word_embeddings"]}


FAMILY = Entry(
    stem="qwen2_5",
    frame="pixel_resized",
    described=QWEN2_5_VL,
    template="swift_grpo_ext.models.qwen2_5_vl",
    tiny={
        "qwen2_5_vl": Tiny(
            "Qwen2_5_VL",
            {"model_type": "qwen2_5_vl", "template": "qwen2_5_vl"},
            {**TEXT_2, "rms_norm_eps": 1e-6},
            TOWER,
            QWEN_IDS,
            processor=processor("Qwen2_5_VLProcessor"),
            follow=follow,
            max_pixels=1280 * 28 * 28,
        )
    },
)
