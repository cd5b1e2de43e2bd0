"""Qwen3-VL, and Qwen3.5 with its recurrent layers; with experts, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swift_grpo_ext.models.chat_template import NO_THOUGHT, chat_template
from swift_grpo_ext.models.families.sizes import (
    EXPERTS,
    HYBRID,
    INTERLEAVED,
    QWEN_IDS,
    QWEN_IMAGE,
    QWEN_VIDEO,
    TEXT,
    TOWER,
)
from swift_grpo_ext.models.family import Entry, Tiny

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_TOWER = {**TOWER, "out_hidden_size": 64, "num_position_embeddings": 256}
_DEEPSTACK = {**_TOWER, "deepstack_visual_indexes": [0, 1]}
_VL = {**TEXT, "rope_parameters": INTERLEAVED}
_3_5 = {**TEXT, **HYBRID, "rope_parameters": {**INTERLEAVED, "partial_rotary_factor": 1.0}}
_SHARED = {**EXPERTS, "shared_expert_intermediate_size": 32}


def processor(tokenizer: object, config: PretrainedConfig, max_pixels: int) -> object:
    """Patches of 16 pixels. Qwen3.5 thinks, unless it is told that it has."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(patch_size=16, min_pixels=32 * 32, max_pixels=max_pixels),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(),
        chat_template=chat_template(
            system="",
            answer=NO_THOUGHT if config.model_type.startswith("qwen3_5") else "",
            image=QWEN_IMAGE,
            video=QWEN_VIDEO,
        ),
    )


def _tiny(
    stem: str, template: str, text: dict[str, object], vision: dict[str, object], **top: object
) -> Tiny:
    model_type = {"Qwen3VL": "qwen3_vl", "Qwen3VLMoe": "qwen3_vl_moe", "Qwen3_5": "qwen3_5"}
    host = {"model_type": model_type.get(stem, "qwen3_5_moe"), "template": template}
    return Tiny(stem, host, text, vision, QWEN_IDS, top=top, processor=processor)


FAMILY = Entry(
    stem="qwen3",
    frame="norm1000",
    tiny={
        "qwen3_vl": _tiny("Qwen3VL", "qwen3_vl", _VL, _DEEPSTACK),
        "qwen3_vl_moe": _tiny("Qwen3VLMoe", "qwen3_vl", {**_VL, **EXPERTS}, _DEEPSTACK),
        "qwen3_5": _tiny("Qwen3_5", "qwen3_5", _3_5, _TOWER, tie_word_embeddings=True),
        "qwen3_5_moe": _tiny("Qwen3_5Moe", "qwen3_5", {**_3_5, **_SHARED}, _TOWER),
    },
)
