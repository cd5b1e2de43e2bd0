"""Tokens and embeddings of Ovis2's images, as functions of tensors; needs no host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.models.families import VisionFamily

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
    found = model.get_image_features(pixel_values=pixel_values)
    if isinstance(found, tuple):  # transformers 4
        return found[0], found[1]
    return found.pooler_output, found.visual_indicator_features


def merge_features(
    embeds: torch.Tensor,
    input_ids: torch.Tensor,
    features: torch.Tensor,
    indicators: torch.Tensor,
    facts: VisionFamily,
) -> torch.Tensor:
    """Embedded tokens ``(batch, seq, hidden)`` with features (any shape that ends in ``hidden``, in the order
    of the placeholders) and indicators ``(5, hidden)`` in the place of their tokens. A RefusedError if there
    are more or fewer features than placeholders.
    """
    features = features.reshape(-1, embeds.shape[-1]).to(embeds.device, embeds.dtype)
    places = input_ids == facts.image_token_id
    if int(places.sum()) != len(features):
        raise RefusedError(
            f"{int(places.sum())} image tokens for {len(features)} image features in a batch",
            fix="report the row: its tokens and its images were made from different inputs",
        )
    embeds = embeds.masked_scatter(places.unsqueeze(-1), features)
    for token_id, indicator in zip(facts.indicator_token_ids, indicators, strict=True):
        at = (input_ids == token_id).unsqueeze(-1)
        embeds = torch.where(at, indicator.to(embeds.device, embeds.dtype), embeds)
    return embeds


def embed_images(
    model: PreTrainedModel, input_ids: torch.Tensor, pixel_values: torch.Tensor | None, facts: VisionFamily
) -> torch.Tensor:
    """Embedded tokens of a batch with its images in place, ``(batch, seq, hidden)``; tiles row by row.

    The tower runs in any case: a batch of text only adds nothing of a blank tile.
    """
    embeds = model.get_input_embeddings()(input_ids)
    dtype = model.model.visual_embeddings_table.weight.dtype
    if pixel_values is None:
        features, indicators = image_features(model, _blank_tile(model, input_ids.device, dtype))
        return embeds + 0.0 * (features.sum() + indicators.sum()).to(embeds.dtype)
    features, indicators = image_features(model, pixel_values.to(dtype))
    return merge_features(embeds, input_ids, features, indicators, facts)


def _blank_tile(model: PreTrainedModel, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    vision = model.config.vision_config
    side = vision.image_size
    height, width = (side, side) if isinstance(side, int) else side
    return torch.zeros(1, vision.num_channels, height, width, device=device, dtype=dtype)
