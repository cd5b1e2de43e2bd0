"""Where the prompts and completions of a pack lie. Stands in for the attention mask of a packed forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Span:
    """One group in a pack: ``prompt`` tokens from ``start`` on, then ``completions`` (tokens of each)."""

    start: int
    prompt: int
    completions: tuple[int, ...]

    @property
    def stop(self) -> int:
        """One past the last token."""
        return self.start + self.prompt + sum(self.completions)


@dataclass(frozen=True)
class Reach:
    """Which of the tokens of its row a layer's token looks at, beside those before it."""

    window: int | None = None  # so many tokens, itself included; None for all
    blocks: bool = False  # also the later tokens of the image that it belongs to


Made = TypeVar("Made")
EVERYTHING_BEFORE = Reach()
ImageBlocks = Literal["none", "windows", "all"]


@dataclass(frozen=True)
class PackForm:
    """How a model takes packs.

    Attributes:
        layer_types: Types of layers to hand a mask over for one by one; empty for one mask for all.
        image_blocks: Layers in which the tokens of an image see each other: no layers, those with a sliding
            window, or all.
    """

    backend: str  # a key of `swift_grpo_ext.group.attention.BACKENDS`
    layer_types: tuple[str, ...] = ()
    image_blocks: ImageBlocks = "none"


@dataclass(frozen=True)
class PackLayout:
    """Spans of a pack, and how the model's layers go over them.

    Attributes:
        blocks: ``[start, stop)`` of each run of image tokens, in order; only where they see each other.
        cache: Index tensors and masks, made once for all layers and passes.
    """

    spans: tuple[Span, ...]  # groups, one after another without a gap
    form: PackForm  # how the model takes packs
    blocks: tuple[tuple[int, int], ...] = ()
    cache: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def length(self) -> int:
        """T, the tokens of the pack."""
        return self.spans[-1].stop

    @property
    def segments(self) -> list[tuple[int, int, int]]:
        """``(group, branch, length)`` of each run of tokens in order; branch 0 is the prompt."""
        return [
            (group, branch, length)
            for group, span in enumerate(self.spans)
            for branch, length in enumerate((span.prompt, *span.completions))
        ]

    def branches(self) -> tuple[Tensor, Tensor]:
        """``(T,)`` number of each token's group, and ``(T,)`` of its completion in it (0: the prompt)."""
        group, branch, length = torch.tensor(self.segments).unbind(1)
        return group.repeat_interleave(length), branch.repeat_interleave(length)

    def positions(self) -> Tensor:
        """``(T,)`` place of each token in the row that it came from."""
        places = [
            torch.arange(length) + (self.spans[group].prompt if branch else 0)
            for group, branch, length in self.segments
        ]
        return torch.cat(places)

    def block_numbers(self) -> Tensor:
        """``(T,)`` number of the run of image tokens that each token belongs to; -1 if to none."""
        numbers = torch.full((self.length,), -1)
        for number, (start, stop) in enumerate(self.blocks):
            numbers[start:stop] = number
        return numbers

    def reach(self, window: int | None) -> Reach:
        """What the tokens of a layer with this sliding window see."""
        longest = max(span.prompt + max(span.completions, default=0) for span in self.spans)
        blocks = bool(self.blocks) and (self.form.image_blocks == "all" or window is not None)
        return Reach(None if window is None or window >= longest else window, blocks)

    def once(self, key: object, make: Callable[[], Made]) -> Made:
        """``make()``, kept under ``key``."""
        if key not in self.cache:
            self.cache[key] = make()
        made: Made = self.cache[key]
        return made


def visible(layout: PackLayout, reach: Reach = EVERYTHING_BEFORE) -> Tensor:
    """``(T, T)`` mask on the CPU, True where the query of the row may look at the key of the column."""
    group, branch = layout.branches()
    at = torch.arange(len(group))
    same_branch = (branch == 0) | (branch[:, None] == branch)
    before = at[:, None] >= at
    if reach.blocks:
        number = layout.block_numbers()
        before |= (number[:, None] == number) & (number >= 0)
    seen = (group[:, None] == group) & before & same_branch
    if reach.window is not None:
        place = layout.positions()
        seen &= place[:, None] - place < reach.window
    return seen
