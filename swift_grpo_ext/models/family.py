"""Types of which a description of a vision-language family is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.group.media import PIXELS, VIDEO_PIXELS, Medium
from swift_grpo_ext.rewards.gold.frames import Frame

Capability = Literal["shared_prefix", "vision_once", "vllm", "zero3"]


@dataclass(frozen=True)
class VisionFamily:
    """One family; module paths are those inside its ``*ForConditionalGeneration`` module."""

    family: str  # ``model_type`` in the checkpoint's config.json
    architecture: str  # class name there
    host_model_type: str  # ms-swift's ``--model_type``
    host_template: str  # ms-swift's ``--template``
    image_token_id: int  # its embedding is replaced by image features; one token per feature
    video_token_id: int | None  # the same for videos; None where a video is a list of images
    indicator_token_ids: tuple[int, ...]  # stand around or between the features of an image
    vision_tower: tuple[str, ...]  # modules that ``--freeze_vit`` freezes
    aligner: tuple[str, ...]  # ``--freeze_aligner``: between tower and language model
    language_model: tuple[str, ...]  # ``--freeze_llm``
    frame: Frame  # in which the model writes boxes and points
    # For each capability that it lacks the reason, one clause, fit for an error message.
    lacks: Mapping[Capability, str] = field(default_factory=dict)
    image_blocks: Literal["none", "windows", "all"] = "none"  # layers where an image's tokens see each other
    audio_token_id: int | None = None  # as image_token_id, for sounds
    # Template or forward look for indicators, too; else these are embedded like words, and alone no image.
    reads_indicators: bool = False

    @property
    def placeholder_token_ids(self) -> tuple[int, ...]:
        """Ids whose embeddings are replaced by features of a tower."""
        ids = (self.image_token_id, self.video_token_id, self.audio_token_id)
        return tuple(token_id for token_id in ids if token_id is not None)

    @property
    def media(self) -> tuple[Medium, ...]:
        """Images and videos, by the names of the model's inputs."""
        return Medium(PIXELS, self.image_token_id), Medium(VIDEO_PIXELS, self.video_token_id)

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

    @property
    def read_token_ids(self) -> tuple[int, ...]:
        """Ids in whose place the forward reads media: a completion that holds one cannot be trained on."""
        return self.forbidden_token_ids if self.reads_indicators else self.placeholder_token_ids

    def require(self, capability: Capability, fix: str = "") -> None:
        """Check that the family has a capability.

        Raises:
            RefusedError: It lacks it; the error names both, and why.
        """
        if reason := self.lacks.get(capability):
            raise RefusedError(f"{self.family} does not support {capability}: {reason}", fix=fix)


@dataclass(frozen=True)
class Tiling:
    """How an image is cut into tiles, each of which is encoded like an image of its own."""

    most: int  # tiles of an image, the overview not among them
    side: int = 0  # pixels; 0 where the tower's ``image_size`` says it


@dataclass(frozen=True)
class Entry:
    """Facts of a family that do not follow from its config."""

    stem: str  # beginning of the ``model_type`` of its configs; of several entries the longest counts
    frame: Frame | None  # in which it writes boxes and points; None if nobody knows
    described: VisionFamily | None = None  # where it is not to be derived from the config
    # Of a config, the fields of the description that are other than derived.
    override: Callable[[Any], dict[str, Any]] | None = None
    template: str = ""  # module with a template of our own, whose ``register`` puts it in place
    # Why ms-swift does not train others of it on the tested versions, by ``model_type``.
    not_loaded: Mapping[str, str] = field(default_factory=dict)
    tiling: Mapping[str, Tiling] = field(
        default_factory=dict
    )  # by ``model_type``; none where images are resized
