"""Qwen2-VL, Qwen2.5-VL, and Qwen2.5-Omni, of which it reads and sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swift_grpo_ext.testing.families.description import Tiny
from swift_grpo_ext.testing.families.sizes import (
    QWEN_CHAT,
    QWEN_IDS,
    ROPE,
    TEXT,
    TEXT_2,
    TOWER,
)

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_OMNI_IDS = {
    "image_token_index": "<|IMAGE|>",
    "video_token_index": "<|VIDEO|>",
    "audio_token_index": "<|AUDIO|>",
    "vision_start_token_id": "<|vision_bos|>",
    "vision_end_token_id": "<|vision_eos|>",
    "audio_start_token_id": "<|audio_bos|>",
    "audio_end_token_id": "<|audio_eos|>",
}
# The processor says bos and eos, the config start and end.
_OMNI_NAMED = {
    name.replace("_start", "_bos").replace("_end", "_eos").removesuffix("_index").removesuffix("_id"): token
    for name, token in _OMNI_IDS.items()
}
_AUDIO = {
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "output_dim": 64,
}


def processor(_config: PretrainedConfig, max_pixels: int) -> dict[str, Any]:
    """Patches of 14 pixels."""
    sizes = {"min_pixels": 56 * 56, "max_pixels": max_pixels}
    return {"image": ("Qwen2VL", sizes), "video": ("Qwen2VL", sizes)}


def follow(text: dict[str, Any], vision: dict[str, Any]) -> dict[str, object]:
    """Rotary pairs for time (a quarter), height, width; every eighth layer of the tower sees everything."""
    pairs = text["hidden_size"] // text["num_attention_heads"] // 2
    depth = vision["depth"]
    time = pairs // 4
    height = (pairs - pairs // 4) // 2
    text.setdefault("rope_scaling", {"type": "mrope", "mrope_section": [time, height, pairs - time - height]})
    vision.setdefault("out_hidden_size", text["hidden_size"])
    vision.setdefault("fullatt_block_indexes", sorted({*range(7, depth, 8), depth - 1}))
    return {"tie_word_embeddings": text["tie_word_embeddings"]}


TINY = {
    "qwen2_vl": Tiny(
        "Qwen2VL",
        {"model_type": "qwen2_vl", "template": "qwen2_vl"},
        {**TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
        {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
        QWEN_IDS,
        processor=processor,
        chat=QWEN_CHAT,
    ),
    "qwen2_5_vl": Tiny(
        "Qwen2_5_VL",
        {"model_type": "qwen2_5_vl", "template": "qwen2_5_vl"},
        {**TEXT_2, "rms_norm_eps": 1e-6},
        TOWER,
        QWEN_IDS,
        processor=processor,
        chat=QWEN_CHAT,
        follow=follow,
        max_pixels=1280 * 28 * 28,
    ),
    "qwen2_5_omni": Tiny(
        "Qwen2_5Omni",
        {"model_type": "qwen2_5_omni", "template": "qwen2_5_omni"},
        {**TEXT, "rope_parameters": ROPE},
        {**TOWER, "out_hidden_size": 64, "fullatt_block_indexes": [1]},
        _OMNI_IDS,
        named=_OMNI_NAMED,
        top={"audio_config": _AUDIO},
        processor=lambda *args: {**processor(*args), "sound": ("Whisper", {"feature_size": 128})},
        chat={
            "image": "<|vision_bos|><|IMAGE|><|vision_eos|>",
            "video": "<|vision_bos|><|VIDEO|><|vision_eos|>",
        },
        empty_files=("spk_dict.pt",),
        inside=("thinker_config", {"enable_audio_output": False}),
    ),
}
