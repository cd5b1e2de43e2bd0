"""Images of a micro-batch: which row they belong to, which are the same, and their features, computed once.

The collated batch holds the pixels of all rows one after another. Which belong to which row follows from the
placeholder tokens: features stand in the sequence one for each placeholder, and every pixel row gives the
same number of features (Qwen2.5-VL: a quarter for a patch; Ovis2: all those of a tile).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from swift_grpo_ext.group.shared_prefix import CannotPackError

Key = tuple[int, ...]
Tower = Callable[[Tensor, "Tensor | None"], Tensor]


@dataclass(frozen=True)
class Images:
    """Pixels of one medium (images, or videos) of a micro-batch.

    Attributes:
        parts: Pixels of each image, ``(rows of pixels, ...)``.
        grid: ``(images, 3)`` frames, height and width in patches; None where each pixel row is an image.
        rows: For each row of the batch the range of its images.
        sizes: Pixel rows of each image.
        tokens: Placeholder tokens of each image, one for each of its features.
        keys: Fingerprint of each image; equal when, and only when, the images are.
    """

    parts: tuple[Tensor, ...]
    grid: Tensor | None
    rows: tuple[range, ...]
    sizes: tuple[int, ...]
    tokens: tuple[int, ...]
    keys: tuple[Key, ...]

    def of_row(self, row: int) -> tuple[Key, ...]:
        """Fingerprints of a row's images, in order."""
        return tuple(self.keys[image] for image in self.rows[row])

    def of_rows(self, rows: Sequence[int]) -> list[int]:
        """Images of some of the rows, in their order."""
        return [image for row in rows for image in self.rows[row]]

    def grid_of(self, images: Sequence[int]) -> Tensor | None:
        """Grid of some of the images, in the given order."""
        return None if self.grid is None else self.grid[list(images)]

    def pick(self, images: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """Pixels and grid of some of the images, in the given order."""
        return torch.cat([self.parts[image] for image in images]), self.grid_of(images)

    def stored_once(self) -> Images:
        """The same with one copy of each distinct image, in the main memory."""
        first: dict[Key, Tensor] = {}
        for key, part in zip(self.keys, self.parts, strict=True):
            if key not in first:
                first[key] = part.to("cpu", copy=True)
        return replace(self, parts=tuple(first[key] for key in self.keys))


def assign(placeholders: Tensor, pixels: Tensor, grid: Tensor | None) -> Images:
    """Find the images of each row of a batch.

    Args:
        placeholders: ``(batch,)`` placeholder tokens of each row.
        pixels: ``(rows of pixels, ...)`` of all rows of the batch, in order.
        grid: ``(images, 3)``, or None where each pixel row is an image.

    Raises:
        CannotPackError: Placeholders and images do not fit together.
    """
    sizes = [1] * len(pixels) if grid is None else grid.prod(-1).tolist()
    tokens = placeholders.tolist()
    if sum(sizes) != len(pixels) or not sum(tokens):
        raise CannotPackError(f"{len(pixels)} pixel rows for {sum(sizes)} by the grid, {sum(tokens)} tokens")
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    image_at = {end: image for image, end in enumerate(ends)}
    rows, start, seen = [], 0, 0
    for of_row in tokens:
        seen += of_row
        stop = image_at.get(seen * len(pixels) // sum(tokens))
        if stop is None or seen * len(pixels) % sum(tokens):
            raise CannotPackError("the placeholder tokens of a row end inside an image")
        rows.append(range(start, stop))
        start = stop
    per_image = tuple(size * sum(tokens) // len(pixels) for size in sizes)
    keys = tuple(fingerprints(pixels, sizes, grid))
    return Images(pixels.split(sizes), grid, tuple(rows), tuple(sizes), per_image, keys)


def fingerprints(pixels: Tensor, sizes: Sequence[int], grid: Tensor | None) -> list[Key]:
    """A 128-bit fingerprint of the bits of each image, computed where the pixels are.

    Two multilinear hashes modulo 2**64 with random multipliers: integer arithmetic, so the order of summation
    does not matter. An image that is the same as the one before it, as within a group, is only compared.
    """
    bits = pixels.reshape(len(pixels), -1).view(_INTEGER_OF_BYTES[pixels.element_size()])
    shapes = [[size] for size in sizes] if grid is None else grid.tolist()
    parts = bits.split(list(sizes))
    hashed: list[int] = []
    source = []
    for image, part in enumerate(parts):
        last = hashed[-1] if hashed else image
        if last == image or shapes[last] != shapes[image] or not torch.equal(parts[last], part):
            hashed.append(image)
        source.append(len(hashed) - 1)
    totals = torch.stack([_hash(parts[image]) for image in hashed]).tolist()
    return [(*totals[number], *shape) for number, shape in zip(source, shapes, strict=True)]


def _hash(bits: Tensor) -> Tensor:
    """Two 64-bit hashes of an integer tensor ``(rows, width)``: ``(2,)``."""
    rows, width = bits.shape
    hashes = torch.stack([(bits * _multipliers(width, seed, bits.device)).sum(1) for seed in (1, 2)], 1)
    places = torch.stack([_multipliers(rows, seed, bits.device) for seed in (3, 4)], 1)
    return (hashes * places).sum(0)


_INTEGER_OF_BYTES = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _multipliers(count: int, seed: int, device: torch.device) -> Tensor:
    """Random odd 64-bit numbers, the same on every device."""
    numbers = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-(2**63), 2**63 - 1, (count,), generator=numbers, dtype=torch.int64)
    return (drawn | 1).to(device)


def trains(modules: Sequence[nn.Module]) -> str:
    """Name of the first parameter in ``modules`` that trains; empty if all are frozen."""
    for module in modules:
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                return name
    return ""


@dataclass
class FeatureCache:
    """Features of the images of one generation batch.

    Attributes:
        limit: Most bytes to keep. What does not fit is computed again when it is needed again.
        features: By fingerprint, in the tower's own dtype, without gradient.
        bytes: Bytes that are kept.
        calls: Times that the tower ran.
        images: Images that it encoded.
    """

    limit: int
    features: dict[Key, Tensor] = field(default_factory=dict)
    bytes: int = 0
    calls: int = 0
    images: int = 0

    def missing(self, images: Images, wanted: Sequence[int]) -> list[int]:
        """The first of the ``wanted`` images with each fingerprint that has no features."""
        first: dict[Key, int] = {}
        for image in wanted:
            first.setdefault(images.keys[image], image)
        return [image for key, image in first.items() if key not in self.features]

    def encode(self, images: Images, wanted: Sequence[int], tower: Tower) -> dict[Key, Tensor]:
        """Run the tower once over the ``wanted`` images; their features, which are kept if they fit.

        Args:
            images: The micro-batch's images.
            wanted: What `missing` answered.
            tower: Turns pixels and grid into ``(features, hidden)`` or ``(pixel rows, features, hidden)``.
        """
        with torch.no_grad():
            features = tower(*images.pick(wanted))
        self.calls += 1
        self.images += len(wanted)
        tokens = [images.tokens[image] for image in wanted]
        parts = features.split([count * len(features) // sum(tokens) for count in tokens])
        fresh = {images.keys[image]: part.clone() for image, part in zip(wanted, parts, strict=True)}
        for key, part in fresh.items():
            if self.bytes + part.nbytes <= self.limit:
                self.features[key] = part
                self.bytes += part.nbytes
        return fresh

    def clear(self) -> None:
        """Let go of all features."""
        self.features.clear()
        self.bytes = 0
