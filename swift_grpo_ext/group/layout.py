"""Where the nodes of a tree of rows lie in a pack, and which of its tokens see each other.

A token sees its own node up to itself, and the nodes above it. Windows are measured in the row's own places:
the first token of a completion stands right behind the last one of its prompt, wherever it lies in the pack.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Bool, Int, Int32, Shaped
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from swift_grpo_ext.group.tree import Node, by_key, paths
from swift_grpo_ext.hugging_face.release import MASKS_BY_KIND


@dataclass(frozen=True)
class Visibility:
    """Which tokens of its row a token sees in a layer: those before it, within a window, and its image."""

    window: int | None = None  # so many tokens, itself included; None for all
    blocks: bool = False  # also the later tokens of the image that it belongs to


Made = TypeVar("Made")
CAUSAL = Visibility()
ImageBlocks = Literal["none", "windows", "all"]  # windows: those with a sliding window


@dataclass(frozen=True)
class PackForm:
    """How a model takes packs."""

    backend: str  # a key of `swift_grpo_ext.group.attention.BACKENDS`
    layer_types: tuple[str, ...] = ()  # types of layers that are handed a mask each; empty: one for all
    image_blocks: ImageBlocks = "none"  # layers in which the tokens of an image see each other


@dataclass(frozen=True)
class Batches:
    """All nodes of a pack, some at a time, as rows of one length: padding repeats a row's first token."""

    numbers: list[list[int]]  # of the nodes of each batch
    index: Int[Tensor, " places"]  # place in the pack of each token, batch by batch, row by row
    real: list[Bool[Tensor, "_ _"]]  # of each batch, ``(rows, length)``, False where that is padding
    back: Int[Tensor, " tokens"]  # where each token of the pack stands among these
    in_order: bool  # the batches, end to end, are the pack itself

    @classmethod
    def of(
        cls, nodes: Sequence[Node], numbers: list[list[int]], device: torch.device, end_to_end: bool = False
    ) -> "Batches":
        """Of nodes, by their ``numbers`` in each batch; ``end_to_end`` without padding, in a single row."""
        index = []
        real = []
        for of_batch in numbers:
            runs = [torch.arange(nodes[number].start, nodes[number].stop) for number in of_batch]
            rows = torch.cat(runs)[None] if end_to_end else pad_sequence(runs, True, -1)
            inside = rows >= 0
            index.append(rows.where(inside, rows[:, :1]).flatten())
            real.append(inside)
        places = torch.cat(index)
        tokens = torch.cat([inside.flatten() for inside in real]).nonzero()[:, 0]
        back = tokens[places[tokens].argsort()]
        in_order = torch.equal(back, torch.arange(len(places)))
        moved = partial(Tensor.to, device=device, non_blocking=True)
        return cls(numbers, moved(places), [*map(moved, real)], moved(back), in_order)

    def split(self, packed: Shaped[Tensor, "..."], dim: int) -> Sequence[Shaped[Tensor, "..."]]:
        """Batches ``(..., rows, length, ...)`` of a tensor whose ``dim`` runs over the pack."""
        whole = packed if self.in_order else packed.index_select(dim, self.index)
        parts = whole.split([inside.numel() for inside in self.real], dim)
        return [part.unflatten(dim, inside.shape) for part, inside in zip(parts, self.real, strict=True)]

    def join(self, batches: Sequence[Shaped[Tensor, "..."]], dim: int) -> Shaped[Tensor, "..."]:
        """The inverse of `split`."""
        whole = torch.cat([batch.flatten(dim, dim + 1) for batch in batches], dim)
        return whole if self.in_order else whole.index_select(dim, self.back)


@dataclass(frozen=True)
class PackLayout:
    """Nodes of a pack, and how the model's layers go over them."""

    nodes: tuple[Node, ...]  # depth first, without a gap
    form: PackForm
    # Number of the image that each token belongs to, 0 if to none; only where its tokens see each other.
    blocks: Int[Tensor, " tokens"] | None = field(default=None, compare=False)
    # Index tensors and masks, made once for all layers and passes.
    cache: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def length(self) -> int:
        """T, the tokens of the pack."""
        return self.nodes[-1].stop

    @cached_property
    def paths(self) -> list[Int[Tensor, " _"]]:
        """Of each node the places of its tokens, behind those of the nodes above it."""
        return paths(self.nodes)

    def families(self) -> list[list[int]]:
        """Numbers of the nodes by what is above them; a family comes after those above it."""
        # A node that begins a row has no parent: it is a family by itself.
        return by_key({n: node.parent if node.parent >= 0 else ~n for n, node in enumerate(self.nodes)})

    def levels(self) -> list[list[int]]:
        """Numbers of the nodes by how many are above them."""
        return by_key({number: node.level for number, node in enumerate(self.nodes)})

    def sees(
        self, queries: Int[Tensor, "..."], keys: Int[Tensor, "..."], visibility: Visibility
    ) -> Bool[Tensor, "..."]:
        """True where a query's token sees a key's, by their places in the pack."""
        seen = (queries >= keys) & (queries < self.subtree_ends()[keys])
        same = None
        if visibility.blocks and self.blocks is not None:
            same = (self.blocks[queries] == self.blocks[keys]) & (self.blocks[keys] > 0)
            seen = seen | same
        if visibility.window is not None:
            place = self.positions()
            near = place[queries] - place[keys] < visibility.window
            if same is not None and not MASKS_BY_KIND:
                near = near | same  # a token sees its image beyond the window, too
            seen = seen & near
        return seen

    def positions(self) -> Int[Tensor, " tokens"]:
        """Place of each token in the rows that it came from."""
        return torch.cat([torch.arange(node.length) + node.first for node in self.nodes])

    def subtree_ends(self) -> Int[Tensor, " tokens"]:
        """One past the last token that sees each token: the end of its node's subtree."""
        ends = torch.zeros(self.length, dtype=torch.long)
        for node, path in zip(self.nodes, self.paths, strict=True):
            ends[path] = node.stop  # of the nodes below one the last comes last
        return ends

    def sequences(
        self, device: torch.device
    ) -> tuple[Int[Tensor, " rows"], Int32[Tensor, " bounds"], Int32[Tensor, " bounds"], int, int]:
        """The nodes as kernels for sequences of any length take them: each behind its path.

        Places of the keys, sequence by sequence; where the queries and where the keys of each begin and end;
        and the most queries and keys of one.
        """

        def make() -> Any:
            sizes = torch.tensor(
                [(node.length, len(path)) for node, path in zip(self.nodes, self.paths, strict=True)]
            )
            queries, keys = pad(sizes.cumsum(0), (0, 0, 1, 0)).int().T.contiguous().to(device)
            return torch.cat(self.paths).to(device), queries, keys, *sizes.amax(0).tolist()

        return self.once(("sequences", device), make)

    def visibility(self, window: int | None) -> Visibility:
        """Visibility of the tokens in a layer with this sliding window."""
        longest = max(node.first + node.length for node in self.nodes)
        blocks = self.blocks is not None and (self.form.image_blocks == "all" or window is not None)
        return Visibility(None if window is None or window >= longest else window, blocks)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """``make()``, kept under ``key``."""
        if key not in self.cache:
            self.cache[key] = make()
        made: Made = self.cache[key]
        return made


class PackMask(Tensor):
    """A mask ``(1, 1, T, 1)`` that shows nothing and carries a layout to every attention function."""

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
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, PackMask) and args and isinstance(args[0], PackMask):
            result.__dict__.update(args[0].__dict__)
        return result


def visible(layout: PackLayout, visibility: Visibility = CAUSAL) -> Bool[Tensor, "tokens tokens"]:
    """Mask on the CPU: True where a row's query may look at a column's key."""
    places = torch.arange(layout.length)
    return layout.sees(places[:, None], places, visibility)


def family_mask(
    layout: PackLayout, family: list[int], above: int, visibility: Visibility, device: torch.device
) -> Bool[Tensor, "rows_or_1 1 length above_and_length"]:
    """Mask of a family as a batch over the last tokens ``above`` it that it sees, and itself."""

    def make() -> Bool[Tensor, "rows_or_1 1 length above_and_length"]:
        # Without images all see what the longest does: nothing before the padding looks at it.
        longest = max(family, key=lambda number: layout.nodes[number].length)
        shown = family if visibility.blocks else [longest]
        paths = [layout.paths[number][-above - layout.nodes[number].length :] for number in shown]
        keys = pad_sequence(paths, True, -1)
        real = keys >= 0
        keys = keys.where(real, keys[:, above : above + 1])
        queries = keys[:, above:, None]
        seen = layout.sees(queries, keys[:, None], visibility) & real[:, None]
        return seen[:, None].to(device)

    return layout.once(("family", family[0], visibility, device), make)
