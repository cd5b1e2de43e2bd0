"""Where the prompts and completions of a pack lie, and which of its tokens see each other.

Windows are measured in the row's own positions: the first token of a completion stands right behind the last
one of its prompt, wherever it lies in the pack.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, no_type_check

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence


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
class Visibility:
    """Which tokens of its row a token sees in a layer: those before it, within a window, and its image."""

    window: int | None = None  # so many tokens, itself included; None for all
    blocks: bool = False  # also the later tokens of the image that it belongs to


Made = TypeVar("Made")
# Of batch, head, and places of query and key in a pack; FlexAttention asks for single ones and whole blocks.
MaskFunction = Callable[..., Bool[Tensor, "..."]]
CAUSAL = Visibility()
ImageBlocks = Literal["none", "windows", "all"]  # windows: those with a sliding window


@dataclass(frozen=True)
class PackForm:
    """How a model takes packs."""

    backend: str  # a key of `swift_grpo_ext.group.attention.BACKENDS`
    layer_types: tuple[str, ...] = ()  # types of layers that are handed a mask each; empty: one for all
    image_blocks: ImageBlocks = "none"  # layers in which the tokens of an image see each other


@dataclass(frozen=True)
class PackLayout:
    """Spans of a pack, and how the model's layers go over them."""

    spans: tuple[Span, ...]  # groups, one after another without a gap
    form: PackForm
    # ``[start, stop)`` of each run of image tokens, in order; only where they see each other.
    blocks: tuple[tuple[int, int], ...] = ()
    # Index tensors and masks, made once for all layers and passes.
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

    def mask_function(self, visibility: Visibility, device: torch.device | str = "cpu") -> MaskFunction:
        """Whether the token at one place of the pack looks at that at another, as FlexAttention asks."""
        group, branch, length = torch.tensor(self.segments, device=device).unbind(1)
        group = group.repeat_interleave(length)
        branch = branch.repeat_interleave(length)
        place = self.positions().to(device)
        number = self.block_numbers().to(device)

        @no_type_check  # FlexAttention traces it: checks inside would break the graph at each call
        def seen(
            batch: Int[Tensor, "..."] | int,
            head: Int[Tensor, "..."] | int,
            q: Int[Tensor, "..."],
            k: Int[Tensor, "..."],
        ) -> Bool[Tensor, "..."]:
            before = q >= k
            if visibility.blocks:
                before = before | ((number[q] == number[k]) & (number[k] >= 0))
            if visibility.window is not None:
                before = before & (place[q] - place[k] < visibility.window)
            same_branch = (branch[k] == 0) | (branch[k] == branch[q])
            return before & (group[q] == group[k]) & same_branch

        return seen

    def positions(self) -> Int[Tensor, " tokens"]:
        """Place of each token in the row that it came from."""
        places = [
            torch.arange(length) + (self.spans[group].prompt if branch else 0)
            for group, branch, length in self.segments
        ]
        return torch.cat(places)

    def block_numbers(self) -> Int[Tensor, " tokens"]:
        """Number of the run of image tokens that each token belongs to; -1 if to none."""
        numbers = torch.full((self.length,), -1)
        for number, (start, stop) in enumerate(self.blocks):
            numbers[start:stop] = number
        return numbers

    def visibility(self, window: int | None) -> Visibility:
        """What the tokens of a layer with this sliding window see."""
        longest = max(span.prompt + max(span.completions, default=0) for span in self.spans)
        blocks = bool(self.blocks) and (self.form.image_blocks == "all" or window is not None)
        return Visibility(None if window is None or window >= longest else window, blocks)

    def to_rows(self, packed: Shaped[Tensor, "..."], span: Span, dim: int) -> Shaped[Tensor, "..."]:
        """The completions of a group, one after another along ``dim``, as ``(rows, longest)``."""
        index = self._ragged(span.completions, packed.device)
        padded = packed if index is None else packed.index_select(dim, index[0])
        return padded.unflatten(dim, (len(span.completions), -1))

    def to_pack(self, rows: Shaped[Tensor, "..."], span: Span, dim: int) -> Shaped[Tensor, "..."]:
        """The way back, of ``(..., rows, longest, ...)`` from ``dim`` on."""
        index = self._ragged(span.completions, rows.device)
        flat = rows.flatten(dim, dim + 1)
        return flat if index is None else flat.index_select(dim, index[1])

    def _ragged(
        self, completions: tuple[int, ...], device: torch.device
    ) -> tuple[Int[Tensor, " padded"], Int[Tensor, " real"]] | None:
        """Index from packed to padded completions, where nobody looks at the padding, and back."""
        width = max(completions)
        if min(completions) == width:
            return None

        def make() -> tuple[Int[Tensor, " padded"], Int[Tensor, " real"]]:
            lengths = torch.tensor(completions)
            columns = torch.arange(width)
            starts = lengths.cumsum(0) - lengths
            padded = (starts[:, None] + columns).clamp(max=sum(completions) - 1)
            real = (columns < lengths[:, None]).flatten().nonzero()[:, 0]
            return padded.flatten().to(device), real.to(device)

        return self.once((completions, device), make)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """``make()``, kept under ``key``."""
        if key not in self.cache:
            self.cache[key] = make()
        made: Made = self.cache[key]
        return made


class PackMask(Tensor):
    """A mask ``(1, 1, T, 0)`` without elements that carries a layout to every attention function."""

    pack_layout: PackLayout  # of the pack (a tensor has a ``layout`` of its own)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: tuple[type, ...],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Whatever is made of the mask (a view, a copy elsewhere) keeps the layout."""
        found = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(found, PackMask) and args and isinstance(args[0], PackMask):
            found.__dict__.update(args[0].__dict__)
        return found


def visible(
    layout: PackLayout, visibility: Visibility = CAUSAL, of: slice = slice(None)
) -> Bool[Tensor, "tokens tokens"]:
    """Mask on the CPU ``of`` some tokens: True where a row's query may look at a column's key."""
    places = torch.arange(layout.length)[of]
    return layout.mask_function(visibility)(0, 0, places[:, None], places)


def completions_mask(
    layout: PackLayout, span: Span, visibility: Visibility, device: torch.device
) -> Bool[Tensor, "rows_or_1 1 width seen_and_width"]:
    """Mask of padded completions over the end of the prompt that they see, and themselves."""

    def make() -> Bool[Tensor, "rows_or_1 1 width seen_and_width"]:
        width = max(span.completions)
        seen = span.prompt if visibility.window is None else min(span.prompt, visibility.window - 1)
        queries = torch.arange(width) + seen
        keys = torch.arange(seen + width)
        ahead = queries[:, None] - keys
        found = (ahead >= 0)[None]
        numbers = layout.block_numbers()[span.start + span.prompt : span.stop]
        if visibility.blocks and bool((numbers >= 0).any()):
            rows = pad_sequence(numbers.split(list(span.completions)), batch_first=True, padding_value=-1)
            # A run that begins in the prompt is none of a completion's: each is a turn of its own.
            of_keys = pad(rows, (seen, 0), value=-1)[:, None]
            found = found | (rows[..., None] == of_keys) & (of_keys >= 0)
        return (found if visibility.window is None else found & (ahead < visibility.window))[:, None].to(
            device
        )

    return layout.once(("completions", span, visibility, device), make)
