"""Ovis2 of transformers' own class, with a template of this package."""

from typing import Any

from swift_grpo_ext.models.family import Entry, Tiling, VisionFamily

# vLLM 0.32.0: model_executor/models/registry.py (it names Ovis, Ovis2_5 and Ovis2_6*) and
# model_executor/models/transformers/multimodal.py (_get_num_mm_tokens). `make test-vllm` shows both answers.
_NO_VLLM_OVIS2 = (
    "vLLM has no Ovis2ForConditionalGeneration (its class Ovis is for the remote-code checkpoints), and its "
    "way around, transformers' own class, asks the processor for _get_num_multimodal_tokens, which "
    "Ovis2Processor lacks"
)

OVIS2 = VisionFamily(
    family="ovis2",
    architecture="Ovis2ForConditionalGeneration",
    host_model_type="ovis2_hf",
    host_template="ovis2_hf",
    image_token_id=151665,  # <IMG_ATOM>
    video_token_id=None,
    indicator_token_ids=(151666, 151667, 151668, 151669, 151670),  # <IMG_START|GRID|COL|ROW|END>
    vision_tower=("model.vision_tower",),
    aligner=("model.visual_embeddings_table",),
    language_model=("model.language_model", "lm_head"),
    frame="norm1000",
    lacks={"vllm": _NO_VLLM_OVIS2},
    reads_indicators=True,  # their embeddings are rows of the aligner's table
)

# The published order, ids 151665 to 151670. ``<image>`` is not a token: the processor replaces that text by
# one atom for each image feature, between the indicators.
ATOM = "<IMG_ATOM>"
INDICATORS = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")


CHAT = {"image": "<image>\n"}


def processor(config: Any, _max_pixels: int, max_tiles: int = 12) -> dict[str, Any]:
    """Tiles."""
    vision = config.vision_config
    per_side = -(-(vision.image_size // vision.patch_size) // vision.hidden_stride)
    side = {"height": vision.image_size, "width": vision.image_size}
    tiles = {"crop_to_patches": True, "max_patches": max_tiles, "size": side}
    return {"image": ("Ovis2", tiles), "image_seq_length": per_side**2}


FAMILY = Entry(
    stem="ovis",
    frame="norm1000",
    described=OVIS2,
    template="swift_grpo_ext.models.ovis2",
    tiling={"ovis2": Tiling(9)},
)
