"""Qwen3-VL, and Qwen3.5 with its recurrent layers; with experts, too."""

from typing import Any

from swift_grpo_ext.models.families.sizes import (
    EXPERTS,
    HYBRID,
    INTERLEAVED,
    QWEN_IDS,
    QWEN_IMAGE,
    QWEN_VIDEO,
    SHARED_EXPERT,
    TEXT,
    TOWER,
)
from swift_grpo_ext.models.family import Entry, Tiny
from swift_grpo_ext.models.processors import NO_THOUGHT, build_processor, chat_template

_TOWER = {**TOWER, "out_hidden_size": 64, "num_position_embeddings": 256}
_DEEPSTACK = {**_TOWER, "deepstack_visual_indexes": [0, 1]}
_VL = {**TEXT, "rope_parameters": INTERLEAVED}
_3_5 = {**TEXT, **HYBRID, "rope_parameters": {**INTERLEAVED, "partial_rotary_factor": 1.0}}


def processor(tokenizer: object, config: Any, max_pixels: int) -> object:
    """Patches of 16 pixels. Qwen3.5 thinks, unless it is told that it has."""
    return build_processor(
        "Qwen3VL",
        tokenizer,
        image=("Qwen2VL", {"patch_size": 16, "min_pixels": 32 * 32, "max_pixels": max_pixels}),
        video=("Qwen3VL", {}),
        chat_template=chat_template(
            system="",
            answer=NO_THOUGHT if config.model_type.startswith("qwen3_5") else "",
            image=QWEN_IMAGE,
            video=QWEN_VIDEO,
        ),
    )


def _tiny(
    model_type: str, stem: str, text: dict[str, object], vision: dict[str, object], **top: object
) -> dict[str, Tiny]:
    host = {"model_type": model_type, "template": model_type.removesuffix("_moe")}
    return {model_type: Tiny(stem, host, text, vision, QWEN_IDS, top=top, processor=processor)}


FAMILY = Entry(
    stem="qwen3",
    frame="norm1000",
    tiny={
        **_tiny("qwen3_vl", "Qwen3VL", _VL, _DEEPSTACK),
        **_tiny("qwen3_vl_moe", "Qwen3VLMoe", {**_VL, **EXPERTS}, _DEEPSTACK),
        **_tiny("qwen3_5", "Qwen3_5", _3_5, _TOWER, tie_word_embeddings=True),
        **_tiny("qwen3_5_moe", "Qwen3_5Moe", {**_3_5, **SHARED_EXPERT}, _TOWER),
    },
)
