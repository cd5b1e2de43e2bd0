"""Qwen3-VL, and Qwen3.5 with its recurrent layers; with experts, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swift_grpo_ext.models.processors import NO_THOUGHT
from swift_grpo_ext.testing.families.description import Tiny
from swift_grpo_ext.testing.families.sizes import (
    EXPERTS,
    HYBRID,
    INTERLEAVED,
    QWEN_CHAT,
    QWEN_IDS,
    SHARED_EXPERT,
    TEXT,
    TOWER,
)

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# As published: of images and videos alike, where transformers has other defaults for images.
_NORMS = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_TOWER = {**TOWER, "out_hidden_size": 64, "num_position_embeddings": 256}
_DEEPSTACK = {**_TOWER, "deepstack_visual_indexes": [0, 1]}
_VL = {**TEXT, "rope_parameters": INTERLEAVED}
# Written in both places, as in released checkpoints: transformers reads one, mcore-bridge the other.
_ROTATED = {"partial_rotary_factor": 1.0}
_3_5 = {**TEXT, **HYBRID, **_ROTATED, "rope_parameters": {**INTERLEAVED, **_ROTATED}}


def processor(_config: PretrainedConfig, max_pixels: int) -> dict[str, Any]:
    """Patches of 16 pixels."""
    options = {"patch_size": 16, "min_pixels": 32 * 32, "max_pixels": max_pixels, **_NORMS}
    return {"stem": "Qwen3VL", "image": ("Qwen2VL", options), "video": ("Qwen3VL", _NORMS)}


def _tiny(
    model_type: str, stem: str, text: dict[str, object], vision: dict[str, object], **top: object
) -> dict[str, Tiny]:
    host = {"model_type": model_type, "template": model_type.removesuffix("_moe")}
    # Qwen3.5 thinks unless the prompt says that it has thought.
    chat = {**QWEN_CHAT, "system": "", "answer": NO_THOUGHT if stem.startswith("Qwen3_5") else ""}
    return {model_type: Tiny(stem, host, text, vision, QWEN_IDS, (), top, processor, chat)}


TINY = {
    **_tiny("qwen3_vl", "Qwen3VL", _VL, _DEEPSTACK),
    **_tiny("qwen3_vl_moe", "Qwen3VLMoe", {**_VL, **EXPERTS}, _DEEPSTACK),
    **_tiny("qwen3_5", "Qwen3_5", _3_5, _TOWER, tie_word_embeddings=True),
    **_tiny("qwen3_5_moe", "Qwen3_5Moe", {**_3_5, **SHARED_EXPERT}, _TOWER),
}
