"""Ovis2 as transformers ships it (`Ovis2ForConditionalGeneration`): model, architecture, template.

Image tokens expand when a row is encoded, so that ids, labels and log-probs have one frame.
"""

import re
from typing import Any

import torch
from numpy import asarray
from PIL import Image
from swift.model import (
    MODEL_MAPPING,
    Model,
    ModelGroup,
    ModelLoader,
    ModelMeta,
    MultiModelKeys,
    register_model,
)
from swift.model.model_arch import register_model_arch
from swift.model.models.qwen import OvisLoader as HostRemoteLoader
from swift.template import StdTemplateInputs, register_template
from swift.template.templates.qwen import QwenTemplateMeta
from swift.utils import get_env_args
from torch import nn
from transformers import PreTrainedModel

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.models.families import VisionFamily, is_native
from swift_grpo_ext.models.families.ovis2 import OVIS2
from swift_grpo_ext.models.image_pipeline import Size
from swift_grpo_ext.models.template import MediaType, VisionTemplate, require_as_many
from swift_grpo_ext.models.video import frames_of, videos_as_images

NAME = OVIS2.host_model_type
SIZES = ("1B", "2B", "4B", "8B", "16B", "34B")
_FRAMES = 12  # the default of the original's video example


class Ovis2Loader(ModelLoader):
    """Loads transformers' own class; no code of a checkpoint is run."""

    default_trust_remote_code = False
    auto_model_cls: Any

    def get_model(self, model_dir: str, *args: object, **kwargs: object) -> object:
        """Load the weights into `Ovis2ForConditionalGeneration`."""
        from transformers import Ovis2ForConditionalGeneration

        self.auto_model_cls = self.auto_model_cls or Ovis2ForConditionalGeneration
        return super().get_model(model_dir, *args, **kwargs)


class RemoteOvis2Loader(HostRemoteLoader):
    """ms-swift's loader of the original checkpoints, where transformers still takes their code."""

    def get_config(self, model_dir: str) -> object:
        """Read the config.

        Raises:
            RefusedError: The checkpoint is of the native class, or transformers cannot load the model.
        """
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

        if is_native(model_dir):
            raise RefusedError(
                "model type ovis2 is the remote-code class", where=model_dir, fix=f"--model_type {NAME}"
            )
        if "aimv2" in CONFIG_MAPPING_NAMES:
            raise RefusedError(
                "this transformers cannot load the original Ovis2: its code registers aimv2, which is taken",
                where=model_dir,
                fix=f"swift-grpo-ext convert-ovis2 {model_dir} {model_dir.rstrip('/')}-hf",
            )
        return super().get_config(model_dir)


class Ovis2Template(VisionTemplate):
    """Template of `Ovis2ForConditionalGeneration`: images are the tiles and tokens of its processor.

    One line break follows each image, as in the model's chat template; one of the row counts. A
    video is its frames, one image each, ``NFRAMES`` of them (default 12).
    """

    def init_env_args(self) -> None:
        """Read ``NFRAMES``, ms-swift's variable for the frames of an Ovis video."""
        super().init_env_args()
        self.nframes = get_env_args("nframes", int, _FRAMES)

    def prepare_image(self, image: Image.Image) -> tuple[dict[str, torch.Tensor], Size, list[int]]:
        """Tiles of the image (first a thumbnail, if there are several) and the tokens for them."""
        processor = self.processor
        # Explicit: transformers 4 takes the rows of an image with as many rows as colours for colours.
        made = processor.image_processor(
            images=[asarray(image)], input_data_format="channels_last", return_tensors="pt"
        )
        rows, columns = made["grids"][0].tolist()
        tiles = made["pixel_values"]
        height, width = tiles.shape[-2:]
        tokens = image_tokens(rows, columns, processor.image_seq_length, self.facts)
        return {"pixel_values": tiles}, (columns * width, rows * height), tokens

    def arrange_media(self, inputs: StdTemplateInputs) -> None:
        """Make images of the videos, and let exactly one line break follow each image."""
        messages = [message for message in inputs.messages if isinstance(message.get("content"), str)]
        contents = [inputs.system, *(message["content"] for message in messages)]
        if inputs.videos:
            frames = [frames_of(video, self.nframes) for video in inputs.videos]
            contents, inputs.images = videos_as_images(contents, inputs.images, frames)
            inputs.videos = []
        inputs.system, *broken = (
            content and re.sub("<image>\n?", "<image>\n", content) for content in contents
        )
        for message, content in zip(messages, broken, strict=True):
            message["content"] = content

    def replace_tag(self, media_type: MediaType, index: int, inputs: StdTemplateInputs) -> list[object]:
        """Stand-in for an image in the prompt until its tokens are known."""
        if media_type != "image":
            return super().replace_tag(media_type, index, inputs)
        self._resize(index, inputs)
        return [[self.facts.image_token_id]]

    def _post_encode(self, model: nn.Module, inputs: dict[str, object]) -> dict[str, object]:
        """Embed text and images here, so that a batch of text runs the tower, too: else ZeRO-3 would hang."""
        if not self.is_training:
            return inputs
        base = self.get_base_model(model)
        embedded = embed_images(base, inputs["input_ids"], inputs.get("pixel_values"), self.facts)
        return {"inputs_embeds": embedded}


def image_tokens(rows: int, columns: int, per_tile: int, facts: VisionFamily) -> list[int]:
    """Tokens that `Ovis2Processor` writes for ``rows x columns`` tiles of ``per_tile`` features."""
    tile = [facts.image_token_id] * per_tile
    start, grid, column, row, end = facts.indicator_token_ids
    tokens = [start, *tile, grid]
    if rows * columns > 1:
        for r in range(rows):
            for c in range(columns):
                tokens += [*tile, column] if c < columns - 1 else tile
            tokens += [row] if r < rows - 1 else []
    return [*tokens, end]


def image_features(model: PreTrainedModel, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Features ``(tiles, per_tile, hidden)`` of tiles, and those of the indicators ``(5, hidden)``."""
    output = model.get_image_features(pixel_values=pixel_values)
    if isinstance(output, tuple):  # transformers 4
        return output[0], output[1]
    return output.pooler_output, output.visual_indicator_features


def merge_features(
    embeds: torch.Tensor,
    input_ids: torch.Tensor,
    features: torch.Tensor,
    indicators: torch.Tensor,
    facts: VisionFamily,
) -> torch.Tensor:
    """Embedded tokens ``(batch, seq, hidden)`` with features and indicators in the place of their tokens.

    Raises:
        RefusedError: A batch has more or fewer image tokens than features.
    """
    features = features.reshape(-1, embeds.shape[-1]).to(embeds.device, embeds.dtype)
    places = input_ids == facts.image_token_id
    require_as_many(int(places.sum()), len(features), "image")
    embeds = embeds.masked_scatter(places.unsqueeze(-1), features)
    for token_id, indicator in zip(facts.indicator_token_ids, indicators, strict=True):
        at = (input_ids == token_id).unsqueeze(-1)
        embeds = torch.where(at, indicator.to(embeds.device, embeds.dtype), embeds)
    return embeds


def embed_images(
    model: PreTrainedModel, input_ids: torch.Tensor, pixel_values: torch.Tensor | None, facts: VisionFamily
) -> torch.Tensor:
    """Embedded tokens with images in place, ``(batch, seq, hidden)``; of text alone nothing is added."""
    embeds = model.get_input_embeddings()(input_ids)
    dtype = model.model.visual_embeddings_table.weight.dtype
    if pixel_values is None:
        vision = model.config.vision_config
        sides = [vision.image_size] * 2 if isinstance(vision.image_size, int) else vision.image_size
        blank = torch.zeros(1, vision.num_channels, *sides, device=input_ids.device, dtype=dtype)
        features, indicators = image_features(model, blank)
        return embeds + 0.0 * (features.sum() + indicators.sum()).to(embeds.dtype)
    features, indicators = image_features(model, pixel_values.to(dtype))
    return merge_features(embeds, input_ids, features, indicators, facts)


def register() -> list[str]:
    """Register model, architecture and template under one name, and say so."""
    models = [Model(f"thisisiron/Ovis2-{size}-hf", f"thisisiron/Ovis2-{size}-hf") for size in SIZES]
    parts = {part: list(getattr(OVIS2, part)) for part in ("language_model", "aligner", "vision_tower")}
    register_model_arch(MultiModelKeys(NAME, **parts), exist_ok=True)
    register_model(
        ModelMeta(
            NAME,
            [ModelGroup(models)],
            Ovis2Loader,
            template=NAME,
            model_arch=NAME,
            architectures=[OVIS2.architecture],
            is_multimodal=True,
            requires=["transformers>=4.57"],
            tags=["vision", "video"],
        ),
        exist_ok=True,
    )
    register_template(QwenTemplateMeta(NAME, template_cls=Ovis2Template), exist_ok=True)
    MODEL_MAPPING["ovis2"].loader = RemoteOvis2Loader
    return [NAME]
