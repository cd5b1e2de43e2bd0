"""Where the nodes of a tree of rows lie in a pack, and which of its tokens see each other.

A token sees its own node up to itself, and the nodes above it. Windows are measured in the row's own places:
the first token of a completion stands right behind the last one of its prompt, wherever it lies in the pack.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, TypeVar, no_type_check

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from swift_grpo_ext.group.tree import Node


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
class Run:
    """A node among the tokens of its family."""

    family: int  # number of the family
    begin: int  # tokens of the family before it
    length: int  # its own


@dataclass(frozen=True)
class Family:
    """Nodes that continue one path: a prompt's completions, say. Attention takes them as a batch."""

    children: tuple[int, ...]  # their numbers; one where nothing is above
    lengths: tuple[int, ...]  # tokens of each
    path: tuple[Run, ...]  # of the nodes above them, from the first one down


@dataclass(frozen=True)
class PackLayout:
    """Nodes of a pack, and how the model's layers go over them."""

    nodes: tuple[Node, ...]  # depth first, without a gap
    form: PackForm
    # ``[start, stop)`` of each run of image tokens, in order; only where they see each other.
    blocks: tuple[tuple[int, int], ...] = ()
    # Index tensors and masks, made once for all layers and passes.
    cache: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def length(self) -> int:
        """T, the tokens of the pack."""
        return self.nodes[-1].stop

    def path(self, number: int) -> list[int]:
        """Numbers of the nodes from the first one down to this; none for -1."""
        above: list[int] = []
        while number >= 0:
            above.append(number)
            number = self.nodes[number].parent
        return above[::-1]

    def tokens_of_path(self, number: int) -> Int[Tensor, " path"]:
        """Places of the tokens of these nodes, in the order of a row."""
        runs = [torch.arange(self.nodes[at].start, self.nodes[at].stop) for at in self.path(number)]
        return torch.cat([torch.arange(0), *runs])

    def families(self) -> tuple[Family, ...]:
        """All nodes by what is above them; a family comes after those above it."""
        return self.once("families", self._families)

    def _families(self) -> tuple[Family, ...]:
        siblings: dict[tuple[int, int], list[int]] = {}
        for number, node in enumerate(self.nodes):
            root = number if node.parent < 0 else -1  # a family by itself: roots continue nothing
            siblings.setdefault((node.parent, root), []).append(number)
        families: list[Family] = []
        paths: dict[int, tuple[Run, ...]] = {-1: ()}  # down to each node, itself included
        for (parent, _), children in siblings.items():
            lengths = tuple(self.nodes[child].length for child in children)
            begins = accumulate(lengths, initial=0)
            for child, begin, length in zip(children, begins, lengths, strict=False):
                paths[child] = (*paths[parent], Run(len(families), begin, length))
            families.append(Family(tuple(children), lengths, paths[parent]))
        return tuple(families)

    def mask_function(self, visibility: Visibility, device: torch.device | str = "cpu") -> MaskFunction:
        """Whether the token at one place of the pack looks at that at another, as FlexAttention asks."""
        end = self.subtree_ends().to(device)
        place = self.positions().to(device)
        number = self.block_numbers().to(device)

        @no_type_check  # FlexAttention traces it: checks inside would break the graph at each call
        def seen(
            batch: Int[Tensor, "..."] | int,
            head: Int[Tensor, "..."] | int,
            q: Int[Tensor, "..."],
            k: Int[Tensor, "..."],
        ) -> Bool[Tensor, "..."]:
            found = (q >= k) & (q < end[k])
            if visibility.blocks:
                found = found | ((number[q] == number[k]) & (number[k] >= 0))
            if visibility.window is not None:
                found = found & (place[q] - place[k] < visibility.window)
            return found

        return seen

    def positions(self) -> Int[Tensor, " tokens"]:
        """Place of each token in the rows that it came from."""
        return torch.cat([torch.arange(node.length) + node.first for node in self.nodes])

    def subtree_ends(self) -> Int[Tensor, " tokens"]:
        """One past the last token that each token is seen by: the end of all that its node leads to."""
        ends = [node.stop for node in self.nodes]
        for number in reversed(range(len(self.nodes))):
            parent = self.nodes[number].parent
            if parent >= 0:
                ends[parent] = max(ends[parent], ends[number])
        return torch.tensor(ends).repeat_interleave(torch.tensor([node.length for node in self.nodes]))

    def key_rows(self) -> tuple[Int[Tensor, " rows"], list[tuple[int, int]]]:
        """Places of the keys that each node sees, node by node; and of each its queries and its keys."""
        paths = [self.tokens_of_path(number) for number in range(len(self.nodes))]
        sizes = [(node.length, len(path)) for node, path in zip(self.nodes, paths, strict=True)]
        return torch.cat(paths), sizes

    def block_numbers(self) -> Int[Tensor, " tokens"]:
        """Number of the run of image tokens that each token belongs to; -1 if to none."""
        numbers = torch.full((self.length,), -1)
        for number, (start, stop) in enumerate(self.blocks):
            numbers[start:stop] = number
        return numbers

    def visibility(self, window: int | None) -> Visibility:
        """What the tokens of a layer with this sliding window see."""
        longest = max(node.first + node.length for node in self.nodes)
        blocks = bool(self.blocks) and (self.form.image_blocks == "all" or window is not None)
        return Visibility(None if window is None or window >= longest else window, blocks)

    def to_rows(
        self, packed: Shaped[Tensor, "..."], lengths: tuple[int, ...], dim: int
    ) -> Shaped[Tensor, "..."]:
        """Runs of these lengths, one after another along ``dim``, as ``(runs, longest)``."""
        index = self._ragged(lengths, packed.device)
        padded = packed if index is None else packed.index_select(dim, index[0])
        return padded.unflatten(dim, (len(lengths), -1))

    def to_pack(
        self, rows: Shaped[Tensor, "..."], lengths: tuple[int, ...], dim: int
    ) -> Shaped[Tensor, "..."]:
        """The way back, of ``(..., runs, longest, ...)`` from ``dim`` on."""
        index = self._ragged(lengths, rows.device)
        flat = rows.flatten(dim, dim + 1)
        return flat if index is None else flat.index_select(dim, index[1])

    def _ragged(
        self, lengths: tuple[int, ...], device: torch.device
    ) -> tuple[Int[Tensor, " padded"], Int[Tensor, " real"]] | None:
        """Index from packed to padded runs, where nobody looks at the padding, and back."""
        width = max(lengths)
        if min(lengths) == width:
            return None

        def make() -> tuple[Int[Tensor, " padded"], Int[Tensor, " real"]]:
            sizes = torch.tensor(lengths)
            columns = torch.arange(width)
            starts = sizes.cumsum(0) - sizes
            padded = (starts[:, None] + columns).clamp(max=sum(lengths) - 1)
            real = (columns < sizes[:, None]).flatten().nonzero()[:, 0]
            return padded.flatten().to(device), real.to(device)

        return self.once((lengths, device), make)

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


def family_mask(
    layout: PackLayout, family: Family, above: int, visibility: Visibility, device: torch.device
) -> Bool[Tensor, "runs_or_1 1 width above_and_width"]:
    """Mask of a family's padded nodes over the last tokens ``above`` them that they see, and themselves."""

    def make() -> Bool[Tensor, "runs_or_1 1 width above_and_width"]:
        children = [layout.nodes[number] for number in family.children]
        width = max(family.lengths)
        ahead = (torch.arange(width) + above)[:, None] - torch.arange(above + width)
        found = (ahead >= 0)[None]
        numbers = [layout.block_numbers()[child.start : child.stop] for child in children]
        if visibility.blocks and bool((torch.cat(numbers) >= 0).any()):
            runs = pad_sequence(numbers, batch_first=True, padding_value=-1)
            # An image lies in one node: none of those above is seen for that.
            of_keys = pad(runs, (above, 0), value=-1)[:, None]
            found = found | (runs[..., None] == of_keys) & (of_keys >= 0)
        if visibility.window is not None:
            found = found & (ahead < visibility.window)
        return found[:, None].to(device)

    return layout.once(("family", family.children[0], visibility, device), make)
