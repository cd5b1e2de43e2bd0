"""What a description of a vision-language family is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.group.family import PIXELS, VIDEO_PIXELS, Medium
from swift_grpo_ext.rewards.frames import Frame

Capability = Literal["shared_prefix", "vision_once", "vllm"]


@dataclass(frozen=True)
class VisionFamily:
    """One family of vision-language models. Module paths are relative to the ``*ForConditionalGeneration``
    module, without a PEFT prefix.

    Attributes:
        family: ``model_type`` in the checkpoint's config.json.
        architecture: Class name there.
        host_model_type: Name for ms-swift's ``--model_type``.
        host_template: Name for ms-swift's ``--template``.
        image_token_id: Token whose embedding is replaced by image features; one token per feature.
        video_token_id: The same for videos; None where a video is a list of images.
        indicator_token_ids: Tokens that stand around or between the features of an image.
        vision_tower: Modules that ``--freeze_vit`` freezes.
        aligner: Modules that ``--freeze_aligner`` freezes, between tower and language model.
        language_model: Modules that ``--freeze_llm`` freezes.
        frame: Coordinate frame in which the model writes boxes and points.
        lacks: For each capability that it has not the reason, one clause, fit for an error message.
        lora_skips: Module of the aligner that LoRA cannot adapt, having no linear layer; empty if it can.
        image_blocks: Layers in which the tokens of an image see each other.
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
    lacks: Mapping[Capability, str] = field(default_factory=dict)
    lora_skips: str = ""
    image_blocks: Literal["none", "windows", "all"] = "none"

    @property
    def placeholder_token_ids(self) -> tuple[int, ...]:
        """Ids whose embeddings are replaced by features of the vision tower."""
        ids = (self.image_token_id, self.video_token_id)
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

    def require(self, capability: Capability, fix: str = "") -> None:
        """Raise a RefusedError that names the family, the capability and why it lacks it; `fix` is what to do
        without.
        """
        if reason := self.lacks.get(capability):
            raise RefusedError(f"{self.family} does not support {capability}: {reason}", fix=fix)


@dataclass(frozen=True)
class Tiny:
    """How a family's tiny checkpoint is made.

    Attributes:
        stem: Of transformers' classes: ``<stem>Config`` and ``<stem>ForConditionalGeneration``.
        host: Arguments of ms-swift that a run needs: ``model_type``, ``template``.
        text: Of the language model's config.
        vision: Of the tower's config; empty for a language model.
        ids: Fields of the config that are ids, with their token or tokens.
        tokens: Special tokens that the tokenizer has beside Qwen's; with the published ids all that it has.
        top: Other fields of the config.
        processor: Makes the processor of a tokenizer, the config and the most pixels of an image; None for a
            language model.
        stock_vocabulary: The special tokens have published ids, from 151643 on.
        empty_files: Files with a dictionary of tensors that the class wants to see.
        inside: Name of the config that holds the parts, where it is not the config itself, and fields around.
        follow: Puts sizes that follow from others into the language model's fields and the tower's, and
            returns those of the config beside them.
        max_pixels: Most pixels of a resized image, where the processor resizes.
        named: Special tokens by the names by which the processor asks the tokenizer for them.
    """

    stem: str
    host: Mapping[str, str]
    text: Mapping[str, Any] = field(default_factory=dict)
    vision: Mapping[str, Any] = field(default_factory=dict)
    ids: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    top: Mapping[str, Any] = field(default_factory=dict)
    processor: Callable[[Any, Any, int], Any] | None = None
    stock_vocabulary: bool = False
    empty_files: tuple[str, ...] = ()
    inside: tuple[str, Mapping[str, Any]] | None = None
    follow: Callable[[dict[str, Any], dict[str, Any]], Mapping[str, object]] | None = None
    max_pixels: int = 256 * 32 * 32
    named: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """What a family's file says.

    Attributes:
        stem: Beginning of the ``model_type`` of its configs; of several entries the longest counts.
        frame: In which it writes boxes and points; None if nobody knows.
        described: The description, where it is not to be derived from the config.
        override: Of a config, the fields of the description that are other than derived.
        template: Module with a template of our own, whose ``register`` puts it in place.
        tiny: Tiny checkpoints, by ``model_type``.
        not_loaded: Why ms-swift does not train others of it on the tested versions, by ``model_type``.
    """

    stem: str
    frame: Frame | None
    described: VisionFamily | None = None
    override: Callable[[Any], dict[str, Any]] | None = None
    template: str = ""
    tiny: Mapping[str, Tiny] = field(default_factory=dict)
    not_loaded: Mapping[str, str] = field(default_factory=dict)
