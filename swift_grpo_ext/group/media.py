"""Facts about a vision-language family that the passes over a group need. Needs no torch."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

ModelInputs: TypeAlias = Mapping[str, Any]  # by name; tensors, but for a few options


class Medium(NamedTuple):
    """Images, or videos, among the inputs of a model."""

    pixels: str  # name of the input that holds the pixels
    token_id: int | None  # placeholder token; one stands for each feature


PIXELS = "pixel_values"
VIDEO_PIXELS = "pixel_values_videos"
# By the input with the pixels, the names of one with an entry for each image; a model has one, or none.
GRIDS_OF = {
    PIXELS: ("image_grid_thw", "image_sizes", "target_sizes", "image_position_ids"),
    VIDEO_PIXELS: ("video_grid_thw",),
}
GRIDS = tuple(name for names in GRIDS_OF.values() for name in names)
MEDIA_INPUTS = (*GRIDS_OF, *GRIDS)


@runtime_checkable
class Family(Protocol):
    """A description of a family, as far as passes need it."""

    @property
    def media(self) -> tuple[Medium, ...]:
        """The media that the family takes."""

    @property
    def encoder(self) -> tuple[str, str]:
        """Path of the module, and its method, that turn pixels into features, one per token."""


@runtime_checkable
class SeeingModel(Protocol):
    """A vision-language model, as far as its tower's calls need it."""

    @property
    def device(self) -> Any:
        """Where it computes."""

    @property
    def dtype(self) -> Any:
        """In which floats."""

    def get_decoder(self) -> Any:
        """Its language model."""

    def get_submodule(self, target: str) -> Any:
        """A module inside, by its path."""
