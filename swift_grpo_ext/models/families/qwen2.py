"""Qwen2.5-VL, with a template of this package."""

from swift_grpo_ext.models.family import Entry, VisionFamily

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
FAMILY = Entry(
    stem="qwen2_5",  # Qwen2.5-Omni, too: the part of it that reads and sees
    frame="pixel_resized",
    described=QWEN2_5_VL,
    template="swift_grpo_ext.models.qwen2_5_vl",
)
