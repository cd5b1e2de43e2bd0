"""Base of the templates of both families: checked rows, images prepared once, guarded generation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from PIL import Image
from swift.template import StdTemplateInputs, Template
from swift.template.vision_utils import rescale_image
from transformers import ProcessorMixin

from swift_grpo_ext.errors import DatasetRowError, RefusedError
from swift_grpo_ext.models import text
from swift_grpo_ext.models.families import VisionFamily, family_of
from swift_grpo_ext.models.image_pipeline import (
    ImagePipeline,
    Options,
    PreparedImage,
    PreparedImageCache,
    Size,
)
from swift_grpo_ext.settings import current_settings

MediaType = Literal["image", "video", "audio"]
STORE_MIB = 1024  # of prepared images, outside of a GRPO run
_OWN_SYSTEM = "\ufdd1"  # a Unicode noncharacter, in the place of the row's own system prompt among tools


class VisionTemplate(Template):
    """Base of the package's templates: a subclass says how one image is resized and prepared."""

    support_padding_free = True
    has_grid = False  # the model takes ``image_grid_thw``
    facts: VisionFamily  # with the ids of this checkpoint

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.placeholder_tokens: list[int] = []  # the host's is one list for all templates of a process
        store = PreparedImageCache(STORE_MIB * 2**20)
        self.pixel_dtype: torch.dtype | None = None  # that the tower reads; None: as they are prepared
        self.images = ImagePipeline(store, self.resize_image, self._prepare_in_dtype)
        super().__init__(*args, **kwargs)

    def init_processor(self, processor: ProcessorMixin | None) -> None:
        """Bind the template to a processor; every token id comes from its model's config."""
        super().init_processor(processor)
        if processor is None:
            return
        facts = family_of(self.config)
        assert facts is not None, f"no facts of {self.config.model_type}"
        self.facts = facts
        self.placeholder_tokens = list(facts.forbidden_token_ids)
        self._set_protected_text()

    def resize_image(self, image: Image.Image, options: Options) -> Image.Image:
        """The image in the size in which it is handed to the processor, or to vLLM."""
        max_pixels = options.get("max_pixels")
        return image if max_pixels is None else rescale_image(image, max_pixels)

    def prepare_image(self, image: Image.Image) -> tuple[dict[str, torch.Tensor], Size, list[int]]:
        """Tensors, size seen by the tower (width, height) and token ids of one resized image."""
        raise NotImplementedError

    def _prepare_in_dtype(self, image: Image.Image) -> tuple[dict[str, torch.Tensor], Size, list[int]]:
        """The same, in the floats that the tower would make of them: of 16 bits half the memory."""
        tensors, seen, token_ids = self.prepare_image(image)
        dtype = self.pixel_dtype
        kept = {
            name: tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
        return kept, seen, token_ids

    def resize_options(self, chat_template_kwargs: Options) -> dict[str, object]:
        """Options that the size of a row's images depends on; they are part of the images' name."""
        return {"max_pixels": chat_template_kwargs.get("max_pixels") or self.max_pixels}

    def image_columns(self, sources: list[object], columns: Options) -> dict[str, object]:
        """Columns for rewards on a row's images, whose size its ``chat_template_kwargs`` may limit: sizes
        ``{"original": [width, height], "resized": ...}`` in pixels, and grids ``[frames, height, width]``.
        """
        options = self.resize_options(columns.get("chat_template_kwargs") or {})
        prepared = self.images.prepare_all(sources, options)
        sizes = [{"original": list(image.original), "resized": list(image.resized)} for image in prepared]
        if not self.has_grid:
            return {"image_sizes": sizes}
        grids = [image.tensors["image_grid_thw"][0].tolist() for image in prepared]
        return {"image_sizes": sizes, "image_grid_thw": grids}

    def _preprocess_inputs(self, inputs: StdTemplateInputs) -> None:
        self._replace_image_tags(inputs)
        counts = {medium: len(getattr(inputs, f"{medium}s")) for medium in text.MEDIA}
        if counts["audio"]:
            raise DatasetRowError(f"{self.facts.family} takes no audio", where=text.label(inputs.messages))
        tags_are_text = not any(counts.values())  # a page that is asked about, a row that is logged
        answers_hold_tags = not tags_are_text and text.check_tags(inputs.system, inputs.messages, counts)
        if isinstance(inputs.system, str):  # its author may mean control tokens, but no image without pixels
            inputs.system = text.keep_as_text(inputs.system, self._placeholder_text)
        for message in inputs.messages:
            plain_tags = tags_are_text or (message["role"] in text.ANSWERS and not answers_hold_tags)
            message["content"] = self._kept_as_text(message, text.TAGS if plain_tags else ())
        if named := inputs.objects.get("ref"):
            inputs.objects["ref"] = [text.keep_as_text(name, self._special_text) for name in named]
        if inputs.is_multimodal:
            self._add_default_tags(inputs)
            self.arrange_media(inputs)
        super()._preprocess_inputs(inputs)

    def arrange_media(self, inputs: StdTemplateInputs) -> None:
        """Change how media stand in the text, once there is one tag for each of them. Default: nothing."""

    def _get_system(self, inputs: StdTemplateInputs) -> str | None:
        """Keep descriptions of tools text: ms-swift writes them into the system prompt, before any image."""
        own = self.template_meta.default_system if inputs.system is None else inputs.system
        if not inputs.tools or not own:
            made = super()._get_system(inputs)
            return text.keep_as_text(made, self._tool_text) if made and inputs.tools else made
        inputs.system = _OWN_SYSTEM
        try:
            made = super()._get_system(inputs)
        finally:
            inputs.system = own
        return made and text.keep_as_text(made, self._tool_text).replace(_OWN_SYSTEM, own)

    @staticmethod
    def _replace_image_tags(inputs: StdTemplateInputs) -> None:
        """Read ms-swift's old ``<img>path</img>`` form only where every path is a file; else it is text."""
        paths = text.image_paths(inputs.messages)
        if paths and all(map(os.path.isfile, paths)):
            Template._replace_image_tags(inputs)

    def _kept_as_text(self, message: Mapping[str, object], tags: tuple[str, ...]) -> object:
        content = message.get("content")
        if not isinstance(content, str):
            return content
        asked = message["role"] in ("user", "tool")
        return text.keep_as_text(content, (*tags, *(self._special_text if asked else self._placeholder_text)))

    def _set_protected_text(self) -> None:
        added = self.tokenizer.added_tokens_decoder
        self._placeholder_text = [str(added[i]) for i in self.facts.forbidden_token_ids if i in added]
        self._tool_text = (*text.TAGS, *self._placeholder_text)
        special = [str(token) for token in added.values() if token.special and len(str(token)) > 1]
        control = current_settings().special_tokens_in_text == "control"
        self._special_text = self._placeholder_text if control else special

    def _tokenize(self, context: str, **kwargs: object) -> list[int]:
        pieces = text.split_at_marker(context)
        tokenized = [Template._tokenize(self, piece, **kwargs) for piece in pieces]
        return tokenized[0] if len(tokenized) == 1 else [token for part in tokenized for token in part]

    def _get_max_pixels(self, inputs: StdTemplateInputs | None = None) -> None:
        """ms-swift must not rescale while loading: `resize_image` does it, once per content."""

    def _load_image(self, image: object, load_images: bool) -> Image.Image:
        return self.images.load(image)

    def _resize(self, index: int, inputs: StdTemplateInputs) -> None:
        options = self.resize_options(inputs.chat_template_kwargs)
        inputs.images[index] = self.images.resize(inputs.images[index], options)

    def _encode(self, inputs: StdTemplateInputs) -> dict[str, object]:
        encoded = Template._encode(self, inputs)
        prepared = [self.images.prepare(image) for image in inputs.images]
        self._expand(encoded, prepared, inputs)
        for name in prepared[0].tensors if prepared else ():
            tensors = [image.tensors[name] for image in prepared]
            encoded[name] = tensors[0] if len(tensors) == 1 else torch.cat(tensors)  # a group shares one copy
        return encoded

    def _expand(
        self, encoded: dict[str, Any], prepared: list[PreparedImage], inputs: StdTemplateInputs
    ) -> list[bool]:
        """Put the tokens of each image in the place of its one placeholder; returns a mask of these tokens.

        Raises:
            DatasetRowError: A row has more or fewer placeholders than images.
        """
        ids = encoded["input_ids"]
        places = [place for place, token in enumerate(ids) if token == self.facts.image_token_id]
        if len(places) != len(prepared):
            problem = f"{len(places)} placeholder tokens for {len(prepared)} images"
            raise DatasetRowError(problem, where=text.label(inputs.messages))
        ids, labels, scale, expanded = self._extend_tokens(
            ids,
            encoded["labels"],
            encoded.get("loss_scale"),
            places,
            lambda number: prepared[number].token_ids,
            mm_mask=[False] * len(ids),
        )
        encoded.update(input_ids=ids, labels=labels, loss_scale=scale)
        return expanded

    def _truncate(
        self,
        input_ids: list[int],
        labels: list[int] | None,
        encoded: dict[str, Any],
        truncation_strategy: str,
    ) -> object:
        of_images = sum(token in self.placeholder_tokens for token in input_ids)
        if of_images >= self.max_length:
            raise DatasetRowError(
                f"{of_images} image tokens leave no room for text in {self.max_length} tokens",
                fix=f"--max_length {of_images + len(input_ids)} or a smaller MAX_PIXELS",
            )
        return super()._truncate(input_ids, labels, encoded, truncation_strategy)

    def prepare_engine_kwargs(self) -> dict[str, object]:
        """Refuse an engine that cannot serve the family, before it loads anything."""
        if self.mode == "vllm":
            self.facts.require("vllm", fix="--use_vllm false: transformers samples")
        return super().prepare_engine_kwargs()


def require_as_many(tokens: int, features: int, medium: str) -> None:
    """Check that each token of a medium in a batch gets a feature, and each feature a token.

    Raises:
        RefusedError: There are more of one than of the other.
    """
    if tokens != features:
        raise RefusedError(
            f"{tokens} {medium} tokens for {features} {medium} features in a batch",
            fix="report the row: its tokens and its images were made from different inputs",
        )


def images_in(messages: Iterable[Mapping[str, object]]) -> list[object]:
    """Image sources that stand in the messages themselves, ``{"type": "image", "image": ...}``, in order."""
    return list(StdTemplateInputs.remove_messages_media([dict(message) for message in messages])["images"])
