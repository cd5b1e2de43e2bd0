"""GLM-4.5V, which has experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swift_grpo_ext.testing.families.description import Tiny
from swift_grpo_ext.testing.families.sizes import ROPE, ROUTED, TEXT, TOWER

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_IDS = {
    "image_token_id": "<|image|>",
    "video_token_id": "<|video|>",
    "image_start_token_id": "<|begin_of_image|>",
    "image_end_token_id": "<|end_of_image|>",
    "video_start_token_id": "<|begin_of_video|>",
    "video_end_token_id": "<|end_of_video|>",
}
_TURNS = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")


_CHAT = {
    "turns": {role: (f"<|{role}|>\n", "") for role in ("system", "user", "assistant")},
    "start": "[gMASK]<sop>",
    "system": "",
    "answer": "<think></think>\n",
    "image": "<|begin_of_image|><|image|><|end_of_image|>",
    "video": "<|begin_of_video|><|video|><|end_of_video|>",
}


def processor(_config: PretrainedConfig, max_pixels: int) -> dict[str, Any]:
    """Patches of 14 pixels."""
    size = {"size": {"shortest_edge": 56 * 56, "longest_edge": max_pixels}}
    return {"stem": "Glm4v", "image": ("Glm4v", size), "video": ("Glm4v", size)}


TINY = {
    "glm4v_moe": Tiny(
        "Glm4vMoe",
        {"model_type": "glm4v_moe", "template": "glm4_5v"},
        {**TEXT, **ROUTED, "rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}},
        {**TOWER, "out_hidden_size": 64},
        _IDS,
        (*_TURNS, *_IDS.values()),
        processor=processor,
        chat=_CHAT,
    )
}
