"""Gemma 3."""

from typing import Any

from swift_grpo_ext.testing.families.description import Tiny
from swift_grpo_ext.testing.families.sizes import SIGLIP, TEXT

_IDS = {
    "image_token_index": "<image_soft_token>",
    "boi_token_index": "<start_of_image>",
    "eoi_token_index": "<end_of_image>",
}
_TURNS = {
    role: (f"<start_of_turn>{name}\n", "<end_of_turn>\n")
    for role, name in (("system", "system"), ("user", "user"), ("assistant", "model"))
}


def processor(config: Any, _max_pixels: int) -> dict[str, Any]:
    """Images of one size."""
    side = config.vision_config.image_size
    size = {"size": {"height": side, "width": side}}
    return {"image": ("Gemma3", size), "image_seq_length": config.mm_tokens_per_image}


TINY = {
    "gemma3": Tiny(
        "Gemma3",
        {"model_type": "gemma3_vision", "template": "gemma3_vision"},
        {**TEXT, "num_hidden_layers": 3, "sliding_window": 12, "sliding_window_pattern": 2},
        SIGLIP,
        _IDS,
        ("<bos>", "<start_of_turn>", "<end_of_turn>"),
        {"mm_tokens_per_image": 4},
        processor,
        {"turns": _TURNS, "start": "<bos>", "system": "", "image": "<start_of_image>"},
        named={name.removesuffix("_index"): token for name, token in _IDS.items()},
    ),
}
