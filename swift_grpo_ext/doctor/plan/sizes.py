"""Sizes of a model, as the arithmetic needs them."""

from __future__ import annotations

from dataclasses import dataclass

from swift_grpo_ext.group.pack_memory import TextSizes


@dataclass(frozen=True)
class VisionShape:
    """Sizes of a vision tower."""

    depth: int  # layers
    hidden: int  # width
    intermediate: int  # width of the MLP
    patch: int  # side of a patch in pixels
    merge: int  # patches per side that become one token of the language model
    channels: int  # values of one patch in `pixel_values`
    vocabulary: int = 0  # visual words that each token is a mixture of (Ovis2); 0 if there are none
    tile: int = 0  # side of a tile in pixels where images are cut into tiles; 0 where they are resized
    most_tiles: int = 9  # most tiles of an image, without the overview
    fixed: int = 0  # tokens of every image, whatever its size (Gemma 3); 0 if they depend on it

    def tokens(self, pixels: int) -> int:
        """Language model tokens of an image of so many pixels; with tiles, the overview image included."""
        if self.fixed:
            return self.fixed
        if not self.tile:
            return max(1, pixels // (self.patch * self.merge) ** 2)
        per_tile = (self.tile // (self.patch * self.merge)) ** 2
        tiles = min(self.most_tiles, max(1, -(-pixels // self.tile**2)))
        return per_tile * (tiles + (tiles > 1))


@dataclass(frozen=True)
class ModelShape:
    """Parameter counts and widths of a model."""

    language: int  # parameters of the language model's layers and final norm
    embedding: int  # parameters of the token embedding
    head: int  # parameters of the output layer; 0 if it shares the embedding's
    tower: int  # parameters of the towers (vision, audio) without the aligner
    aligner: int  # parameters between tower and language model
    largest: int  # parameters of the largest single module
    small: int  # parameters in tensors of at most 100,000 elements
    text: TextSizes  # widths of the language model
    kv_heads: int  # key and value heads
    heads: int  # query heads
    linears: tuple[tuple[int, int], ...]  # (in, out) of every linear layer inside the language model's layers
    vision: VisionShape | None  # the vision tower, or None
    # names of all linear layers and embeddings, as ms-swift's model has them; none of remote code
    modules: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """All parameters, shared ones once."""
        return self.language + self.embedding + self.head + self.tower + self.aligner

    @property
    def in_linears(self) -> int:
        """Parameters of the language model that 4-bit and 8-bit loading can shrink."""
        return sum(inputs * outputs for inputs, outputs in self.linears)

    def lora(self, rank: int) -> int:
        """Parameters of LoRA on every linear layer of the language model."""
        return sum(rank * (inputs + outputs) for inputs, outputs in self.linears)

    def trainable(
        self, *, full: bool, rank: int, freeze_vit: bool = True, freeze_aligner: bool = True, llm: bool = True
    ) -> int:
        """Parameters that the optimizer sees; ``llm``: the language model is not frozen."""
        if not full:
            return self.lora(rank)
        vision = (0 if freeze_vit else self.tower) + (0 if freeze_aligner else self.aligner)
        return (self.language + self.embedding + self.head if llm else 0) + vision
