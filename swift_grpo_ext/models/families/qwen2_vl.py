"""Qwen2-VL."""

from __future__ import annotations

from collections.abc import Callable

from swift_grpo_ext.models.chat_template import chat_template
from swift_grpo_ext.models.families.sizes import QWEN_IDS, QWEN_IMAGE, QWEN_VIDEO, TEXT
from swift_grpo_ext.models.family import Entry, Tiny


def processor(name: str) -> Callable[[object, object, int], object]:
    """Maker of a processor of that class, for patches of 14 pixels."""

    def make(tokenizer: object, _config: object, max_pixels: int) -> object:
        import transformers

        pixels = {"min_pixels": 56 * 56, "max_pixels": max_pixels}
        return getattr(transformers, name)(
            image_processor=transformers.Qwen2VLImageProcessor(**pixels),
            tokenizer=tokenizer,
            video_processor=transformers.Qwen2VLVideoProcessor(**pixels),
            chat_template=chat_template(image=QWEN_IMAGE, video=QWEN_VIDEO),
        )

    return make


FAMILY = Entry(
    stem="qwen2_vl",
    frame="norm1000",
    tiny={
        "qwen2_vl": Tiny(
            "Qwen2VL",
            {"model_type": "qwen2_vl", "template": "qwen2_vl"},
            {**TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
            {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
            QWEN_IDS,
            processor=processor("Qwen2VLProcessor"),
        )
    },
)
