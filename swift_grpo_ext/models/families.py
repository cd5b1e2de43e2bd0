"""What the rest of the package may know about a vision-language family, as data.

The trainer, the placeholder guard and preflight read these descriptors, so nothing outside ``models/``
tests for the name of a family. Needs neither torch nor the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swift_grpo_ext.models import derived
from swift_grpo_ext.models.family import Capability as Capability
from swift_grpo_ext.models.family import CapabilityName as CapabilityName
from swift_grpo_ext.models.family import Supported as Supported
from swift_grpo_ext.models.family import Unsupported as Unsupported
from swift_grpo_ext.models.family import VisionFamily as VisionFamily

_FLASH = "--attn_impl flash_attn, as ms-swift demands for rows without padding"

# vLLM 0.32.0: model_executor/models/registry.py (it names Ovis, Ovis2_5 and Ovis2_6*) and
# model_executor/models/transformers/multimodal.py (_get_num_mm_tokens). `make test-vllm` shows both answers.
_NO_VLLM_OVIS2 = (
    "vLLM has no Ovis2ForConditionalGeneration (its class Ovis is for the remote-code checkpoints), and its "
    "way around, transformers' own class, asks the processor for _get_num_multimodal_tokens, which "
    "Ovis2Processor lacks"
)

QWEN2_5_VL = VisionFamily(
    family="qwen2_5_vl",
    architecture="Qwen2_5_VLForConditionalGeneration",
    host_model_type="qwen2_5_vl",
    host_template="qwen2_5_vl",
    image_token_id=151655,  # <|image_pad|>
    video_token_id=151656,  # <|video_pad|>
    indicator_token_ids=(151652, 151653),  # <|vision_start|> <|vision_end|>
    vision_tower=("model.visual",),
    aligner=("model.visual.merger",),
    language_model=("model.language_model", "lm_head"),
    frame="pixel_resized",
    capabilities={
        "padding_free": Supported(_FLASH),
        "packing": Supported(_FLASH),
        "sequence_parallel": Supported("flash attention"),
        "vllm": Supported(),
        "shared_prefix": Supported(),
        "vision_once": Supported("a frozen tower without adapters"),
        "mixed_rows_zero3": Supported(),
        "video": Supported(),
    },
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
    capabilities={
        "padding_free": Supported(_FLASH),
        "packing": Supported(_FLASH),
        "sequence_parallel": Supported("flash attention"),
        "vllm": Unsupported(_NO_VLLM_OVIS2),
        "shared_prefix": Supported(),
        "vision_once": Supported("a frozen tower and visual table without adapters"),
        "mixed_rows_zero3": Supported(),
        "video": Supported("frames; each becomes one image"),
    },
)

FAMILIES: dict[str, VisionFamily] = {facts.family: facts for facts in (QWEN2_5_VL, OVIS2)}


def family_of(config_or_model_type: Any) -> VisionFamily | None:
    """Facts of a model, with its own token ids where a config is given.

    Args:
        config_or_model_type: A transformers config (or one that holds it as ``.config``), or a name:
            ``model_type`` of config.json, the host's ``--model_type`` or an architecture. For a name the
            ids are those of the published vocabularies.

    Returns:
        The facts: described here, else derived from the config. None for the name of a family that is not
        described, and for a config that says too little (`swift_grpo_ext.models.derived.why_unknown`).
    """
    if isinstance(config_or_model_type, str):
        return _by_name(config_or_model_type)
    config = config_or_model_type
    if not hasattr(config, "model_type") and hasattr(config, "config"):
        config = config.config
    facts = FAMILIES.get(getattr(config, "model_type", ""))
    if facts is None:
        return derived.derive(config)
    return _with_ids_of(facts, config)


def why_unknown(config: Any) -> str:
    """Why nothing is known of a config's family; empty if something is."""
    return "" if getattr(config, "model_type", "") in FAMILIES else derived.why_unknown(config)


def forbidden_token_ids(config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Ids that a model must never write: placeholders of media and what stands around them.

    Args:
        config: Of the model.
        tokenizer: Of the model. Asked where nobody has described the family and its config says that it
            takes images.
    """
    facts = family_of(config)
    if facts is not None and facts.family in FAMILIES:
        return facts.forbidden_token_ids
    if facts is None and getattr(config, "vision_config", None) is None:
        return ()
    return tuple(sorted({*(facts.forbidden_token_ids if facts else ()), *derived.media_tokens(tokenizer)}))


def _by_name(name: str) -> VisionFamily | None:
    for facts in FAMILIES.values():
        if name in (facts.family, facts.host_model_type, facts.architecture):
            return facts
    return None


def _with_ids_of(facts: VisionFamily, config: Any) -> VisionFamily:
    if facts.family == "ovis2":
        indicators = tuple(config.visual_indicator_token_ids)
    else:
        indicators = (config.vision_start_token_id, config.vision_end_token_id)
    return replace(
        facts,
        image_token_id=config.image_token_id,
        video_token_id=getattr(config, "video_token_id", None),
        indicator_token_ids=indicators,
    )
