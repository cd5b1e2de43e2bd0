"""Gemma 3 and 4: the tokens of an image see each other."""

from typing import Any

from swift_grpo_ext.models.family import Entry


def of_gemma(config: Any) -> dict[str, object]:
    """In which layers they do (``create_masks_for_vision_model`` of both), and what begins an image.

    ms-swift's template puts an image's placeholders behind each token that begins one, a sampled one too.
    """
    seen = getattr(config.get_text_config(), "use_bidirectional_attention", None) == "vision"
    blocks = "all" if config.model_type == "gemma3" else "windows" if seen else "none"
    return {"image_blocks": blocks, "reads_indicators": True}


FAMILY = Entry(
    stem="gemma",
    frame="norm1000",
    override=of_gemma,
    not_loaded={
        "gemma4": "ms-swift 4.6.0 asks for one tensor of features, transformers 5.19 gives one for each image"
    },
)
