"""What a description of a vision-language family is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
