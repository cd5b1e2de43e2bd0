"""Gemma 3 and 4: the tokens of an image see each other."""

from typing import Any

from swift_grpo_ext.models.families.sizes import SIGLIP, TEXT
from swift_grpo_ext.models.family import Entry, Tiny

_IDS = {
    "image_token_index": "<image_soft_token>",
    "boi_token_index": "<start_of_image>",
    "eoi_token_index": "<end_of_image>",
}
_TURNS = {
    role: (f"<start_of_turn>{name}\n", "<end_of_turn>\n")
    for role, name in (("system", "system"), ("user", "user"), ("assistant", "model"))
}


def image_blocks(config: Any) -> dict[str, object]:
    """In which layers they do (``create_masks_for_vision_model`` of both)."""
    if config.model_type == "gemma3":
        return {"image_blocks": "all"}
    seen = getattr(config.get_text_config(), "use_bidirectional_attention", None) == "vision"
    return {"image_blocks": "windows" if seen else "none"}


def processor(config: Any, _max_pixels: int) -> dict[str, Any]:
    """Images of one size."""
    side = config.vision_config.image_size
    size = {"size": {"height": side, "width": side}}
    return {"image": ("Gemma3", size), "image_seq_length": config.mm_tokens_per_image}


FAMILY = Entry(
    stem="gemma",
    frame="norm1000",
    override=image_blocks,
    not_loaded={
        "gemma4": "ms-swift 4.6.0 asks for one tensor of features, transformers 5.19 gives one for each image"
    },
    tiny={
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
    },
)
