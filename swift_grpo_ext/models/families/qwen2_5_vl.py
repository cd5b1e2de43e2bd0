"""Qwen2.5-VL, with a template of this package."""

from __future__ import annotations

from swift_grpo_ext.models.family import Entry, Supported, VisionFamily

_FLASH = "--attn_impl flash_attn, as the host demands for rows without padding"

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
    capabilities={
        "padding_free": Supported(_FLASH),
        "packing": Supported(_FLASH),
        "sequence_parallel": Supported("flash attention"),
        "vllm": Supported(),
        "shared_prefix": Supported(),
        "vision_once": Supported("a frozen tower without adapters"),
        "mixed_rows_zero3": Supported(),
        "video": Supported(),
    },
)

FAMILY = Entry(
    stem="qwen2_5",
    frame="pixel_resized",
    described=QWEN2_5_VL,
    template="swift_grpo_ext.models.qwen2_5_vl",
)
