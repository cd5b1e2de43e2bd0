"""What the rest of the package may know about a vision-language family, as data.

The trainer, the placeholder guard and preflight read these descriptors, so nothing outside ``models/``
tests for the name of a family. Needs neither torch nor the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.group.family import GRID, PIXELS, VIDEO_GRID, VIDEO_PIXELS, Medium
from swift_grpo_ext.rewards.frames import Frame

CapabilityName = Literal[
    "padding_free",
    "packing",
    "sequence_parallel",
    "vllm",
    "shared_prefix",
    "vision_once",
    "mixed_rows_zero3",
    "video",
]


@dataclass(frozen=True)
class Supported:
    """The family can do it.

    Attributes:
        needs: A condition that the run must meet, in words; empty if there is none.
    """

    needs: str = ""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True)
class Unsupported:
    """The family cannot do it.

    Attributes:
        reason: One clause, fit for an error message.
    """

    reason: str

    def __bool__(self) -> bool:
        return False


Capability = Supported | Unsupported


@dataclass(frozen=True)
class VisionFamily:
    """One family of vision-language models.

    Module paths are relative to the ``*ForConditionalGeneration`` module, without a PEFT prefix.

    Attributes:
        family: ``model_type`` in the checkpoint's config.json.
        architecture: Class name in the checkpoint's config.json.
        host_model_type: Name for the host's ``--model_type``.
        host_template: Name for the host's ``--template``.
        image_token_id: Token whose embedding is replaced by image features; one token per feature.
        video_token_id: The same for videos; None where a video is a list of images.
        indicator_token_ids: Tokens that stand around or between the features of an image.
        vision_tower: Modules that ``--freeze_vit`` freezes.
        aligner: Modules that ``--freeze_aligner`` freezes, between tower and language model.
        language_model: Modules that ``--freeze_llm`` freezes.
        frame: Coordinate frame in which the model writes boxes and points.
        capabilities: For every name of `CapabilityName`, whether it works and if not, why.
    """

    family: str
    architecture: str
    host_model_type: str
    host_template: str
    image_token_id: int
    video_token_id: int | None
    indicator_token_ids: tuple[int, ...]
    vision_tower: tuple[str, ...]
    aligner: tuple[str, ...]
    language_model: tuple[str, ...]
    frame: Frame
    capabilities: Mapping[CapabilityName, Capability]

    @property
    def placeholder_token_ids(self) -> tuple[int, ...]:
        """Ids whose embeddings are replaced by features of the vision tower."""
        ids = (self.image_token_id, self.video_token_id)
        return tuple(token_id for token_id in ids if token_id is not None)

    @property
    def media(self) -> tuple[Medium, ...]:
        """Images and videos, by the names of the model's inputs."""
        image = Medium(PIXELS, GRID, self.image_token_id)
        return image, Medium(VIDEO_PIXELS, VIDEO_GRID, self.video_token_id)

    @property
    def encoder(self) -> tuple[str, str]:
        """Module and method that encode pixels: the tower where it merges patches, else the model's own."""
        (tower,) = self.vision_tower
        if all(part.startswith(tower) for part in self.aligner):
            return tower, "forward"
        return tower.rpartition(".")[0], "get_image_features"

    @property
    def forbidden_token_ids(self) -> tuple[int, ...]:
        """Ids that a model must never write: placeholders and indicators (C3 of docs/findings.md)."""
        return tuple(sorted({*self.placeholder_token_ids, *self.indicator_token_ids}))

    def require(self, capability: CapabilityName, fix: str = "") -> None:
        """Raise if the family lacks a capability.

        Args:
            capability: What is asked for.
            fix: What the user changes to do without.

        Raises:
            RefusedError: Names the family, the capability and the reason.
        """
        answer = self.capabilities[capability]
        if isinstance(answer, Unsupported):
            what = f"{self.family} does not support {capability}: {answer.reason}"
            raise RefusedError(what, fix=fix)


_FLASH = "--attn_impl flash_attn, as the host demands for rows without padding"

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
        from swift_grpo_ext.models.derived import derive

        return derive(config)
    return _with_ids_of(facts, config)


def why_unknown(config: Any) -> str:
    """Why nothing is known of a config's family; empty if something is."""
    from swift_grpo_ext.models import derived

    return "" if getattr(config, "model_type", "") in FAMILIES else derived.why_unknown(config)


def forbidden_token_ids(config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Ids that a model must never write: placeholders of media and what stands around them.

    Args:
        config: Of the model.
        tokenizer: Of the model. Asked where nobody has described the family and its config says that it
            takes images.
    """
    from swift_grpo_ext.models.derived import media_tokens

    facts = family_of(config)
    if facts is not None and facts.family in FAMILIES:
        return facts.forbidden_token_ids
    if facts is None and getattr(config, "vision_config", None) is None:
        return ()
    return tuple(sorted({*(facts.forbidden_token_ids if facts else ()), *media_tokens(tokenizer)}))


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
