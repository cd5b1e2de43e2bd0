"""MiniCPM-V 4.6: slices of an image, before a language model with recurrent layers."""

from typing import Any

from swift_grpo_ext.models.families.sizes import HYBRID, INTERLEAVED, SIGLIP, TEXT
from swift_grpo_ext.models.family import Entry, Tiling, Tiny
from swift_grpo_ext.models.processors import NO_THOUGHT

# transformers' merger calls its layers once for each slice, and each call gathers parameters from all ranks.
_NO_ZERO3 = "ranks of ZeRO-3 would have to encode as many slices each; --deepspeed zero2 where it fits"
# Architecture of the language model by the version in the config of remote code.
_LANGUAGE = {"2.6": "qwen2", "4.0": "llama", "4": "llama", "4.5": "qwen3"}
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


FAMILY = Entry(
    stem="minicpmv",
    frame="norm1000",
    override=lambda config: {"lacks": {"zero3": _NO_ZERO3}},
    tiling={"minicpmv": Tiling(9, side=448)},  # of remote code: versions before 4.6
    language_type=lambda config: _LANGUAGE.get(str(config.get("version"))),
    tiny={
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
    },
)
