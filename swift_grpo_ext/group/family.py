"""What the passes over a group must know of a vision-language family. Needs no torch."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Medium(NamedTuple):
    """Images, or videos, among the inputs of a model.

    Attributes:
        pixels: Name of the input that holds the pixels.
        grid: Name of the input with frames, height and width in patches.
        token_id: Placeholder token; one stands for each feature.
    """

    pixels: str
    grid: str
    token_id: int | None


PIXELS, GRID = "pixel_values", "image_grid_thw"
VIDEO_PIXELS, VIDEO_GRID = "pixel_values_videos", "video_grid_thw"
GRID_OF = {PIXELS: GRID, VIDEO_PIXELS: VIDEO_GRID}
MEDIA_INPUTS = (*GRID_OF, *GRID_OF.values())


class Family(Protocol):
    """A description of a family, as far as passes need it."""

    @property
    def media(self) -> tuple[Medium, ...]:
        """The media that the family takes."""

    @property
    def placeholder_token_ids(self) -> tuple[int, ...]:
        """Tokens whose embeddings are replaced by features."""

    @property
    def encoder(self) -> tuple[str, str]:
        """Path of the module, and its method, that turn pixels into features, one per token."""
