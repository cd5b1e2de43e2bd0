"""What an engine may do with images otherwise, for the trainer to do the same and to compare."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from peft.tuners.tuners_utils import BaseTunerLayer
from PIL import Image
from torch import Tensor, nn
from transformers import ProcessorMixin

from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.engine.agreement import CHANNELS, FILTERS

Positions: TypeAlias = Int[Tensor, "rows batch seq"]
"""Rows of M-RoPE: time, height and width of each token."""


def with_rows(rows: Sequence[int], positions: Positions) -> Positions:
    """Positions with these rows; with none as of a model of text: each token stands one further."""
    counted = torch.arange(positions.shape[-1], device=positions.device).expand_as(positions)
    return positions[[*rows]] if rows else counted


@contextmanager
def positions_by(rows: Sequence[int], model: nn.Module) -> Iterator[None]:
    """While this is open, a model with M-RoPE computes `with_rows`; others as always."""

    def changed(rotate: nn.Module) -> Callable[..., object]:
        forward = rotate.forward

        def with_changed(
            states: Float[Tensor, "..."], position_ids: Int[Tensor, "..."], *args: object, **kwargs: object
        ) -> object:
            has_rows = position_ids.ndim == 3 and len(position_ids) == 3
            return forward(
                states, with_rows(rows, position_ids) if has_rows else position_ids, *args, **kwargs
            )

        return with_changed

    with ExitStack() as stack:
        for name, module in model.named_modules():
            if name.endswith("rotary_emb"):
                stack.enter_context(swapped(module, "forward", changed(module)))
        yield


PictureChange: TypeAlias = Callable[[Image.Image, tuple[int, int] | None], Image.Image]
"""Of a picture, and of its final size (width, height), if that is known."""


def blue_first(picture: Image.Image, _size: tuple[int, int] | None) -> Image.Image:
    """With red and blue in each other's place."""
    return Image.merge("RGB", picture.split()[::-1])


def resized_by(filter: Image.Resampling) -> PictureChange:
    """How a picture is brought to its final size by a filter of Pillow."""

    def resized(picture: Image.Image, size: tuple[int, int] | None) -> Image.Image:
        return picture.resize(size, filter) if size else picture

    return resized


OTHER_PICTURES: Mapping[str, PictureChange] = {
    CHANNELS: blue_first,
    **{
        f"{FILTERS} {name}": resized_by(Image.Resampling[name.upper()])
        for name in ("nearest", "bilinear", "lanczos")
    },
}


@contextmanager
def without_adapters(towers: Iterable[nn.Module]) -> Iterator[None]:
    """While this is open, LoRA does nothing in some modules."""
    with ExitStack() as stack:
        for layer in chain.from_iterable(tower.modules() for tower in towers):
            if isinstance(layer, BaseTunerLayer):
                stack.enter_context(swapped(layer, "_disable_adapters", True))
        yield


@contextmanager
def videos_as_images(processor: ProcessorMixin) -> Iterator[None]:
    """While this is open, videos are normalised with mean and deviation of images."""
    images = processor.image_processor
    videos = processor.video_processor
    with swapped(videos, "image_mean", images.image_mean), swapped(videos, "image_std", images.image_std):
        yield
