"""Gemma 3 and 4: the tokens of an image see each other."""

from typing import Any

from swift_grpo_ext.models.family import Entry


def image_blocks(config: Any) -> dict[str, object]:
    """In which layers they do (``create_masks_for_vision_model`` of both)."""
    if config.model_type == "gemma3":
        return {"image_blocks": "all"}
    seen = getattr(config.get_text_config(), "use_bidirectional_attention", None) == "vision"
    return {"image_blocks": "windows" if seen else "none"}


FAMILY = Entry(
    stem="gemma",
    frame="norm1000",
    override=image_blocks,
    not_loaded={
        "gemma4": "ms-swift 4.6.0 asks for one tensor of features, transformers 5.19 gives one for each image"
    },
)
