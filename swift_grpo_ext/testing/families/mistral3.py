"""Mistral 3: Pixtral's tower, images in their own shape."""

from typing import Any

from swift_grpo_ext.testing.families.description import Tiny
from swift_grpo_ext.testing.families.sizes import SIGLIP, TEXT

_TURNS = {
    "system": ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "user": ("[INST]", "[/INST]"),
    "assistant": ("", "</s>"),
}
_TOKENS = ("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")


def processor(config: Any, _max_pixels: int) -> dict[str, Any]:
    """Rows of patches, with a token at the end of each."""
    patch = config.vision_config.patch_size
    sizes = {"size": {"longest_edge": 112}, "patch_size": {"height": patch, "width": patch}}
    merged = config.spatial_merge_size
    return {"stem": "Pixtral", "image": ("Pixtral", sizes), "patch_size": patch, "spatial_merge_size": merged}


TINY = {
    "mistral3": Tiny(
        "Mistral3",
        # The system prompt of the template is longer than a tiny model's context.
        {"model_type": "mistral3", "template": "mistral_2503", "system": "Answer."},
        {**TEXT, "model_type": "mistral", "sliding_window": None},
        {**SIGLIP, "model_type": "pixtral", "image_size": 112},
        {"image_token_index": "[IMG]"},
        (*_TOKENS, "[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        {"tie_word_embeddings": False},
        processor,
        {"turns": _TURNS, "start": "<s>", "system": "Answer.", "image": "[IMG]"},
    )
}
