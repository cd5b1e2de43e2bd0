"""Ovis2 of transformers' own class."""

from typing import Any

from swift_grpo_ext.models.families.ovis2 import ATOM, CHAT, INDICATORS, processor
from swift_grpo_ext.testing.families.description import Tiny
from swift_grpo_ext.testing.families.sizes import SIGLIP, TEXT_2


def follow(text: dict[str, Any], _vision: dict[str, Any]) -> dict[str, object]:
    """Repeat some of the language model's sizes in the outer config."""
    return {name: text[name] for name in ("hidden_size", "vocab_size")}


TINY = {
    "ovis2": Tiny(
        "Ovis2",
        {"model_type": "ovis2_hf", "template": "ovis2_hf"},
        {**TEXT_2, "model_type": "qwen2"},
        {**SIGLIP, "hidden_stride": 2, "vocab_size": 64},
        {"image_token_id": ATOM, "visual_indicator_token_ids": INDICATORS},
        (ATOM, *INDICATORS),
        processor=processor,
        chat=CHAT,
        follow=follow,
    ),
}
