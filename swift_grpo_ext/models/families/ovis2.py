"""Ovis2 of transformers' own class, with a template of this package."""

from __future__ import annotations

from swift_grpo_ext.models.family import Entry, VisionFamily

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
    lora_skips="visual_embeddings_table",
)

FAMILY = Entry(
    stem="ovis",
    frame="norm1000",
    described=OVIS2,
    template="swift_grpo_ext.models.ovis2",
)
