"""Images of a micro-batch: which row they belong to, which are the same, and their features, computed once.

The collated batch holds the pixels of all rows one after another. Which belong to which row follows from the
placeholder tokens: features stand in the sequence one for each placeholder, and their number is in proportion
to an image's patches (Qwen2.5-VL), tiles (Ovis2) or area (Mistral 3), or an image is a run of them (LLaVA).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel

from swift_grpo_ext.group.media import GRIDS_OF, Medium, ModelInputs
from swift_grpo_ext.group.shared_prefix import CannotPackError, check_names, token_keys

Key = tuple[int, ...]
Pixels = Shaped[Tensor, "..."]
Grid = Shaped[Tensor, "images *entry"]
Features = Float[Tensor, " features *width"]


@dataclass(frozen=True)
class Images:
    """Pixels of one medium (images, or videos) of a micro-batch."""

    # Of each image, ``(rows of pixels, ...)``, or ``(..., columns)`` for ``target_sizes``.
    parts: tuple[Pixels, ...]
    grid: Grid | None  # on the CPU; None where each pixel row is an image
    rows: tuple[range, ...]  # for each row of the batch the range of its images
    sizes: tuple[int, ...]  # pixel rows of each image
    tokens: tuple[int, ...]  # placeholder tokens of each image, one for each of its features
    keys: tuple[Key, ...]  # fingerprint of each image; equal when, and only when, the images are
    # On the CPU, at each placeholder the number of the image that it stands for; -1 at other tokens.
    places: Int[Tensor, "batch seq"]
    grid_name: str = ""  # name of the model's input that ``grid`` is

    def of_row(self, row: int) -> tuple[Key, ...]:
        """Fingerprints of a row's images, in order."""
        return tuple(self.keys[image] for image in self.rows[row])

    def of_rows(self, rows: Sequence[int]) -> list[int]:
        """Images of some of the rows, in their order."""
        return [image for row in rows for image in self.rows[row]]

    def grid_of(self, images: Sequence[int]) -> dict[str, Grid]:
        """Grid of some of the images, in the given order, by the name of the input, if there is one."""
        return {} if self.grid is None else {self.grid_name: self.grid[list(images)]}

    def pixels_of(self, images: Sequence[int]) -> Pixels:
        """Pixels of some of the images, in the given order."""
        return torch.cat([self.parts[image] for image in images], _axis(self.grid_name))

    def stored_once(self) -> Images:
        """The same with one copy of each distinct image, in the main memory."""
        first: dict[Key, Pixels] = {}
        for key, part in zip(self.keys, self.parts, strict=True):
            if key not in first:
                first[key] = part.to("cpu", copy=True)
        return replace(self, parts=tuple(first[key] for key in self.keys))


def assign_media(inputs: ModelInputs, media: Sequence[Medium]) -> dict[str, Images]:
    """Images and videos of each row, by the input with the pixels.

    Raises:
        CannotPackError: The family does not take such pixels, or they do not fit their placeholder tokens.
    """
    known = {medium.pixels: medium.token_id for medium in media if medium.token_id is not None}
    present = [name for name in GRIDS_OF if inputs.get(name) is not None]
    check_names(present, known)
    images = {}
    for pixels in present:
        grid = next((name for name in GRIDS_OF[pixels] if inputs.get(name) is not None), "")
        placeholders = inputs["input_ids"] == known[pixels]
        images[pixels] = assign(placeholders, inputs[pixels], inputs.get(grid), grid)
    return images


def assign(
    placeholders: Bool[Tensor, "batch seq"], pixels: Pixels, grid: Grid | None, name: str = "image_grid_thw"
) -> Images:
    """Images of one medium.

    ``grid`` is the input of that name; None where each row of pixels is an image.

    Raises:
        CannotPackError: Pixels, grid and placeholder tokens do not fit each other, or a row ends inside an
            image.
    """
    grid = None if grid is None else grid.cpu()
    placeholders = placeholders.cpu()
    sizes, weights = _measured(pixels, grid, name)
    inside, runs = pad(placeholders, (0, 1)).flatten().unique_consecutive(return_counts=True)
    tokens = runs[inside].tolist()
    if name != "image_sizes" or len(tokens) != len(sizes):
        tokens = _proportional(weights, sum(tokens))
    # Placeholders before each image, and before each row, and behind the last.
    starts = [*accumulate(tokens, initial=0)]
    ends = [0, *placeholders.sum(1).cumsum(0).tolist()]
    if not {*starts} >= {*ends}:
        raise CannotPackError("the placeholder tokens of a row end inside an image")
    rows = tuple(range(starts.index(start), starts.index(end)) for start, end in pairwise(ends))
    axis = _axis(name)
    keys = tuple(fingerprints(pixels.movedim(axis, 0), sizes, grid))
    parts = pixels.split(sizes, axis)
    places = torch.full(placeholders.shape, -1)
    places[placeholders] = torch.arange(len(tokens)).repeat_interleave(torch.tensor(tokens, dtype=torch.long))
    return Images(parts, grid, rows, tuple(sizes), tuple(tokens), keys, places, name)


def _axis(name: str) -> int:
    """Axis along which the pixels of several images are concatenated."""
    return -1 if name == "target_sizes" else 0


def _measured(pixels: Pixels, grid: Grid | None, name: str) -> tuple[list[int], list[int]]:
    """Pixel rows of each image, and a value to which its number of features is proportional.

    Raises:
        CannotPackError: The numbers of pixel rows and of images do not fit.
    """
    length = pixels.shape[_axis(name)]
    if grid is None:
        return [1] * length, [1] * length
    if name == "image_position_ids":  # of each patch; -1 behind the last
        return [1] * length, (grid != -1).all(-1).sum(-1).tolist()
    weights: list[int] = grid.prod(-1).tolist()
    if name == "image_sizes":  # pixels are padded to one size, or cut into equally many tiles
        per_image, rest = divmod(length, len(grid))
        if rest or (per_image > 1 and len(set(weights)) > 1):
            raise CannotPackError("images of different sizes, cut into tiles")
        return [per_image] * len(grid), weights
    columns, rest = divmod(length, sum(weights) or 1)
    if rest or (columns != 1 and _axis(name) == 0):
        raise CannotPackError(f"{length} pixel rows for {sum(weights)} by the grid")
    return [columns * weight for weight in weights], weights


def _proportional(weights: Sequence[int], tokens: int) -> list[int]:
    shares = [divmod(weight * tokens, sum(weights)) for weight in weights]
    if not tokens or not all(share and not rest for share, rest in shares):
        raise CannotPackError(f"{tokens} placeholder tokens do not fit {len(weights)} images")
    return [share for share, _ in shares]


def fingerprints(pixels: Pixels, sizes: Sequence[int], grid: Grid | None) -> list[Key]:
    """A 128-bit fingerprint of the bits of each image, computed where the pixels are.

    Two multilinear hashes modulo 2**64: in integers the order of summation does not matter. The host waits
    for a GPU once, for any number of images.
    """
    rows = pixels.reshape(len(pixels), -1).contiguous().view(torch.uint8)
    rest = -rows.shape[1] % 8
    # Narrower integers, widened in the product, take a CPU 20 times as long.
    bits = (pad(rows, (0, rest)) if rest else rows).view(torch.int64)
    shapes = [[size] for size in sizes] if grid is None else grid.flatten(1).tolist()
    hashes = [_hash(part) for part in bits.split(list(sizes))]
    digests = torch.stack(hashes).tolist() if hashes else []
    return [(*own, *shape) for own, shape in zip(digests, shapes, strict=True)]


def image_numbers(
    media: Sequence[Images],
    input_ids: Int[Tensor, "batch seq"],
    position_ids: Int[Tensor, "*axes batch seq"] | None = None,
) -> Int[Tensor, "batch seq"]:
    """Number of the image that each placeholder stands for, 0 at other tokens.

    Two images have one number if all that lies between their first and last placeholders is equal, so that
    rows are parted before an image, and never inside it.
    """
    tokens = token_keys(input_ids, position_ids)
    numbers = torch.zeros_like(tokens[0])
    known: dict[Hashable, int] = {}
    for medium, images in enumerate(media):
        of_images = [0]
        for key, own in zip(images.keys, (images.places >= 0).nonzero().split(images.tokens), strict=True):
            row, first = own[0].tolist()
            content = tokens[:, row, first : int(own[-1, 1]) + 1].contiguous().numpy().tobytes()
            of_images.append(known.setdefault((medium, key, content), len(known) + 1))
        numbers += torch.tensor(of_images)[images.places + 1]
    return numbers


def _hash(bits: Int[Tensor, "rows width"]) -> Int[Tensor, " 2"]:
    """Two 64-bit hashes."""
    rows, width = (partial(_multipliers, size, device=bits.device) for size in bits.shape)
    return torch.stack([((bits * width(seed)).sum(1) * rows(seed + 2)).sum() for seed in (1, 2)])


def _multipliers(count: int, seed: int, device: torch.device) -> Int[Tensor, " numbers"]:
    """Random odd 64-bit numbers, the same on every device."""
    numbers = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-(2**63), 2**63 - 1, (count,), generator=numbers, dtype=torch.int64)
    return (drawn | 1).to(device, non_blocking=True)


def outside_of_language(base: PreTrainedModel) -> Iterator[tuple[str, nn.Parameter]]:
    """Names and parameters that train, outside of the language model."""
    heads = base.get_decoder(), base.get_input_embeddings(), base.get_output_embeddings()
    speaks = {id(parameter) for part in heads if part is not None for parameter in part.parameters()}
    return (
        (name, parameter)
        for name, parameter in base.named_parameters()
        if parameter.requires_grad and id(parameter) not in speaks
    )


def trains_outside(base: PreTrainedModel) -> str:
    """Name of the first parameter that trains outside of the language model; empty without one."""
    return next((name for name, _ in outside_of_language(base)), "")


Tower = Callable[[Images, Sequence[int]], Features]


@dataclass
class FeatureCache:
    """Features of the images of one generation batch."""

    limit: int  # most bytes to keep; what does not fit is computed again when it is needed again
    # By fingerprint, in the tower's own dtype, without gradient.
    features: dict[Key, Features] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes that are kept."""
        return sum(part.nbytes for part in self.features.values())

    def missing(self, images: Images, wanted: Sequence[int]) -> list[int]:
        """The first of the ``wanted`` images with each fingerprint that has no features."""
        first: dict[Key, int] = {}
        for image in wanted:
            first.setdefault(images.keys[image], image)
        return [image for key, image in first.items() if key not in self.features]

    def encode(self, images: Images, wanted: Sequence[int], tower: Tower) -> dict[Key, Features]:
        """Run the tower once over the ``wanted`` images; their features, which are kept if they fit."""
        with torch.no_grad():
            features = tower(images, wanted)
        tokens = [images.tokens[image] for image in wanted]
        parts = features.split([count * len(features) // sum(tokens) for count in tokens])
        fresh = {images.keys[image]: part.clone() for image, part in zip(wanted, parts, strict=True)}
        for key, part in fresh.items():
            if self.bytes + part.nbytes <= self.limit:
                self.features[key] = part
        return fresh

    def clear(self) -> None:
        """Drop all features."""
        self.features.clear()
