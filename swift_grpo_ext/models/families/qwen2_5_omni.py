"""Qwen2.5-Omni: what it reads and sees; nobody trains what it hears and says here."""

from __future__ import annotations

from swift_grpo_ext.models.chat_template import chat_template
from swift_grpo_ext.models.families.sizes import ROPE, TEXT, TOWER
from swift_grpo_ext.models.family import Entry, Tiny

_NAMED = {
    "image_token": "<|IMAGE|>",
    "video_token": "<|VIDEO|>",
    "audio_token": "<|AUDIO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}
_AUDIO = {
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "output_dim": 64,
}


def processor(tokenizer: object, _config: object, max_pixels: int) -> object:
    """Patches of 14 pixels."""
    from transformers import (
        Qwen2_5OmniProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        WhisperFeatureExtractor,
    )

    pixels = {"min_pixels": 56 * 56, "max_pixels": max_pixels}
    return Qwen2_5OmniProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        video_processor=Qwen2VLVideoProcessor(**pixels),
        feature_extractor=WhisperFeatureExtractor(feature_size=128),
        tokenizer=tokenizer,
        chat_template=chat_template(
            image="<|vision_bos|><|IMAGE|><|vision_eos|>", video="<|vision_bos|><|VIDEO|><|vision_eos|>"
        ),
    )


FAMILY = Entry(
    stem="qwen2_5_omni",
    frame="pixel_resized",
    tiny={
        "qwen2_5_omni": Tiny(
            "Qwen2_5Omni",
            {"model_type": "qwen2_5_omni", "template": "qwen2_5_omni"},
            {**TEXT, "rope_parameters": ROPE},
            {**TOWER, "out_hidden_size": 64, "fullatt_block_indexes": [1]},
            {
                "image_token_index": "<|IMAGE|>",
                "video_token_index": "<|VIDEO|>",
                "audio_token_index": "<|AUDIO|>",
                "vision_start_token_id": "<|vision_bos|>",
                "vision_end_token_id": "<|vision_eos|>",
                "audio_start_token_id": "<|audio_bos|>",
                "audio_end_token_id": "<|audio_eos|>",
            },
            named=_NAMED,
            top={"audio_config": _AUDIO},
            processor=processor,
            empty_files=("spk_dict.pt",),
            inside=("thinker_config", {"enable_audio_output": False}),
        )
    },
)
