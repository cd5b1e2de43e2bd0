"""Qwen2.5-VL: ms-swift's model and template, with ids from the config and each image prepared once."""

import dataclasses
import os
from typing import Any

import torch
from PIL import Image
from swift.model import MODEL_MAPPING
from swift.model.models.qwen import Qwen2_5VLLoader as HostLoader
from swift.template import TEMPLATE_MAPPING, StdTemplateInputs, register_template
from swift.template.templates.qwen import Qwen2_5VLTemplate as HostTemplate
from transformers import ProcessorMixin

from swift_grpo_ext.models.image_pipeline import Options, Size
from swift_grpo_ext.models.template import MediaType, VisionTemplate, require_as_many
from swift_grpo_ext.models.video import UNREADABLE, give_qwen_a_reader, reading

TEMPLATE_TYPES = ("qwen2_5_vl", "mimo_vl")
# What ``qwen_vl_utils`` raises beside our reader: others that a machine may have find no file
# (RuntimeError) or no frame rate (KeyError); frames of a list differ in size (RuntimeError); the row's
# options exclude each other (AssertionError) or are not numbers (TypeError).
_REFUSED_BY_QWEN = (*UNREADABLE, RuntimeError, KeyError, AssertionError, TypeError)
_PIXEL_LIMITS = ("min_pixels", "max_pixels", "resized_height", "resized_width")
# The host's own, for ``qwen_vl_utils``.
_LIMITING_VARIABLES = ("IMAGE_MAX_TOKEN_NUM", "IMAGE_MIN_TOKEN_NUM")


class Qwen2_5VLTemplate(VisionTemplate, HostTemplate):
    """Template of `Qwen2_5_VLForConditionalGeneration`; ids come from the config."""

    has_grid = True

    def init_processor(self, processor: ProcessorMixin | None) -> None:
        """Bind the template to a processor and take the placeholder ids from its model's config."""
        super().init_processor(processor)
        if processor is not None:
            self.image_token_id = self.facts.image_token_id
            self.video_token_id = self.facts.video_token_id

    def resize_options(self, chat_template_kwargs: Options) -> dict[str, object]:
        """ms-swift's ``--max_pixels``, and the limits of the row as ``qwen_vl_utils`` calls them."""
        limits = {name: chat_template_kwargs[name] for name in _PIXEL_LIMITS if name in chat_template_kwargs}
        return {**limits, "rescale": self.max_pixels}

    def resize_image(self, image: Image.Image, options: Options) -> Image.Image:
        """Resize to multiples of 28 pixels within the limits of the row, ms-swift's or the checkpoint's."""
        from qwen_vl_utils import fetch_image
        from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

        image = super().resize_image(image, {"max_pixels": options["rescale"]})
        limits = {name: value for name, value in options.items() if name in _PIXEL_LIMITS}
        if limits or any(map(os.environ.get, _LIMITING_VARIABLES)):
            return fetch_image({"image": image, **limits})
        # As the checkpoint's processor does: ``qwen_vl_utils`` does not read the limits in
        # preprocessor_config.json, and makes less of images that are thinner than half a patch.
        processor = self.processor.image_processor
        height, width = smart_resize(
            image.height,
            image.width,
            factor=processor.patch_size * processor.merge_size,
            min_pixels=processor.size["shortest_edge"],
            max_pixels=processor.size["longest_edge"],
        )
        return image.resize((width, height))

    def prepare_image(self, image: Image.Image) -> tuple[dict[str, torch.Tensor], Size, list[int]]:
        """Patches of the image, by its processor: one placeholder for every ``merge_size**2`` patches."""
        processor = self.processor.image_processor
        made = processor(images=[image], return_tensors="pt", do_resize=False)
        tensors = {name: made[name] for name in ("pixel_values", "image_grid_thw")}
        features = int(tensors["image_grid_thw"].prod()) // processor.merge_size**2
        return tensors, image.size, [self.facts.image_token_id] * features

    def replace_tag(self, media_type: MediaType, index: int, inputs: StdTemplateInputs) -> list[object]:
        """Stand-in for an image in the prompt until its tokens are known; videos get ms-swift's."""
        if media_type == "video":
            return self._replace_video(index, inputs)
        if media_type != "image" or self.mode == "lmdeploy":
            return super().replace_tag(media_type, index, inputs)
        if self.mode == "vllm":
            inputs.mm_processor_kwargs["do_resize"] = False
        self._resize(index, inputs)
        return ["<|vision_start|><|image_pad|><|vision_end|>"]

    def _replace_video(self, index: int, inputs: StdTemplateInputs) -> list[object]:
        give_qwen_a_reader()
        video = inputs.videos[index]
        if isinstance(video, (list, tuple)):
            inputs.videos[index] = [self.images.load(frame) for frame in video]
        with reading(video, _REFUSED_BY_QWEN):
            return list(super().replace_tag("video", index, inputs))

    def _encode(self, inputs: StdTemplateInputs) -> dict[str, object]:
        if inputs.videos:
            return HostTemplate._encode(self, inputs)
        encoded = VisionTemplate._encode(self, inputs)
        if inputs.images and self.requires_mm_token_type_ids:
            ids = encoded["input_ids"]
            encoded["mm_token_type_ids"] = self.create_mm_token_type_ids(ids)
        return encoded

    def _data_collator(self, batch: list[dict[str, Any]], *, padding_to: int | None = None) -> dict[str, Any]:
        collated: dict[str, Any] = super()._data_collator(batch, padding_to=padding_to)
        if self.is_training:
            self._check_features(collated)
        return collated

    def _check_features(self, inputs: dict[str, Any]) -> None:
        """Every image and video token gets one feature; ms-swift alone would fill what fits.

        Compared before they go to a GPU, because the host would have to wait for it.

        Raises:
            RefusedError: A medium has more or fewer tokens than features.
        """
        merged = self.processor.image_processor.merge_size**2
        for medium, token_id in zip(("image", "video"), self.facts.placeholder_token_ids, strict=True):
            grid = inputs.get(f"{medium}_grid_thw")
            features = 0 if grid is None else int(grid.prod(-1).sum()) // merged
            require_as_many(int((inputs["input_ids"] == token_id).sum()), features, medium)


class Qwen2_5VLLoader(HostLoader):
    """ms-swift's loader; the class is transformers' own, so no code of a checkpoint is run."""

    default_trust_remote_code = False


def register() -> list[str]:
    """Put model and templates in the place of ms-swift's, under every template type that uses them."""
    MODEL_MAPPING["qwen2_5_vl"].loader = Qwen2_5VLLoader
    for name in TEMPLATE_TYPES:
        meta = dataclasses.replace(TEMPLATE_MAPPING[name], template_cls=Qwen2_5VLTemplate)
        register_template(meta, exist_ok=True)
    return list(TEMPLATE_TYPES)
