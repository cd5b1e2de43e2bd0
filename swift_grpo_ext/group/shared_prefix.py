"""From the rows of a micro-batch to a pack: what rows share at their beginning once, then what differs.

A completion attends to its prompt and to itself, at the positions that its tokens have in the ordinary batch,
so its log-probs are those of the row it came from. Padding is left out, and so is the last token of each row,
from which nothing is predicted. The same idea for prompts of text: PrefixGrouper, arXiv 2506.05433.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.nn.functional import pad

from swift_grpo_ext.group.layout import PackForm, PackLayout
from swift_grpo_ext.group.tree import WORTH, Node, Row, build_tree


class CannotPackError(ValueError):
    """The micro-batch has a form that a pack cannot express; the stock path can."""


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse unknown inputs of a model.

    Raises:
        CannotPackError: A ``given`` name is not among the ``known`` ones.
    """
    if unknown := set(given) - set(known):
        raise CannotPackError(f"model inputs {', '.join(sorted(unknown))}")


@dataclass(frozen=True)
class Pack:
    """Where every token of a pack comes from and where every log-prob goes."""

    layout: PackLayout  # nodes of shared tokens, for the attention functions
    source: Int[Tensor, " tokens"]  # flat index into a ``(batch, seq)`` tensor of each token of the pack
    predictor: Int[Tensor, " scored"]  # places in the pack of the hidden states that predict loss tokens
    ids: Int[Tensor, " scored"]  # of the loss tokens that these predict
    score: Int[Tensor, " losses"]  # number of the score of each loss token: rows that share a token share it
    target: Int[Tensor, " losses"]  # flat index into ``(batch, seq)`` of each loss token
    batch: int  # rows of the ordinary batch
    seq: int  # its width
    keep: int  # and that of its completion region

    def on(self, device: torch.device) -> "Pack":
        """The same, to be used with tensors of a device."""
        names = ("source", "predictor", "ids", "score", "target")
        # Computed on the CPU: on the device the host would wait for it.
        self.layout.once("needed", lambda: self.predictor.unique().to(device, non_blocking=True))
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in names})

    def gather(self, rows: Shaped[Tensor, "*before batch seq"]) -> Shaped[Tensor, "*before 1 tokens"]:
        """Take the pack's tokens out of the ordinary batch.

        Raises:
            CannotPackError: The tensor is not of the pack's batch.
        """
        if rows.shape[-2:] != (self.batch, self.seq):
            raise CannotPackError(f"expected (..., {self.batch}, {self.seq}), got {tuple(rows.shape)}")
        return rows.flatten(-2)[..., self.source].unsqueeze(-2)

    def scatter(self, values: Shaped[Tensor, " scored *rest"]) -> Shaped[Tensor, "batch keep *rest"]:
        """Put values of the scored tokens at the places of all loss tokens; 0 at all others."""
        rows = values.new_zeros((self.batch * self.seq, *values.shape[1:]))
        of_losses = values.index_select(0, self.score)
        rows = rows.index_copy(0, self.target, of_losses)
        return rows.unflatten(0, (self.batch, self.seq))[:, -self.keep :]


def token_keys(
    input_ids: Int[Tensor, "batch seq"], *others: Int[Tensor, "... batch seq"] | None
) -> Int[Tensor, "fields batch seq"]:
    """Values that tell the tokens of a batch apart: their ids, and those of ``others`` that are not None."""
    fields = [values for values in (input_ids, *others) if values is not None]
    return torch.cat([values.long().reshape(-1, *input_ids.shape) for values in fields])


def read_rows(
    input_ids: Int[Tensor, "batch seq"],
    attention_mask: Shaped[Tensor, "batch seq"],
    completion_mask: Shaped[Tensor, "batch keep"],
    images: Int[Tensor, "batch seq"] | None = None,
    position_ids: Int[Tensor, "*axes batch seq"] | None = None,
) -> list[Row]:
    """Rows with a loss of a collated batch, padded on either side, without the last token that has one.

    All is in host memory, here and in `build_pack`: each read from a GPU would make the host wait for it.
    ``completion_mask`` is over the last ``keep`` columns, True where a token has a loss. Tokens are equal
    where their ids and positions (of another frame rate) are, and at placeholders the numbers of their
    ``images``, 0 elsewhere.

    Raises:
        CannotPackError: A row has padding between its tokens, or a completion without a prompt before it.
    """
    present = attention_mask.bool()
    losses = completion_mask.bool()
    seq = present.shape[1]
    start, last = _ends(present)
    if bool((last - start != present.sum(1)).any()):
        raise CannotPackError("a row has padding between its tokens")
    split, stop = _ends(pad(losses, (seq - losses.shape[1], 0)))
    has_loss = losses.any(1)
    if bool((has_loss & ((split <= start) | (stop > last))).any()):
        raise CannotPackError("a row has no prompt before its completion")

    keys = token_keys(input_ids, position_ids, images).flatten(1)
    first = start + torch.arange(len(start)) * seq
    bounds = torch.stack([first, first + stop - start - 1, split - start], 1)[has_loss].tolist()
    return [Row(keys[:, begin:end], prompt, begin) for begin, end, prompt in bounds]


def _ends(marks: Bool[Tensor, "batch seq"]) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """Of each row the first marked column, and one past the last."""
    return marks.int().argmax(1), marks.shape[1] - marks.flip(1).int().argmax(1)


def build_pack(
    rows: Sequence[Row],
    input_ids: Int[Tensor, "batch seq"],
    completion_mask: Shaped[Tensor, "batch keep"],
    form: PackForm,
    token_types: Int[Tensor, "batch seq"] | None = None,
    worth: int = WORTH,
) -> Pack:
    """Lay the tree of the rows out, in the main memory.

    ``token_types``, 1 of images and 2 of videos, are read where these see each other; ``worth`` is the least
    number of tokens that a shared run has to spare, but for whole prompts.

    Raises:
        CannotPackError: ``rows`` is empty, or an image reaches from a prompt into a completion.
    """
    if not rows:
        raise CannotPackError("no row has a completion token with a loss")
    batch, seq = input_ids.shape
    ids = input_ids.flatten()
    losses = completion_mask.bool()
    keep = losses.shape[1]
    tree = build_tree(rows, worth)
    source = torch.zeros(tree.length, dtype=torch.long)
    place = torch.zeros(len(ids), dtype=torch.long)  # in the pack, of each token of the batch
    # A node is taken from the longest of its rows, which has all of it, images and all.
    for row, places in sorted(zip(rows, tree.places, strict=True), key=lambda pair: pair[0].tokens):
        own = torch.arange(row.start, row.start + row.tokens)
        source[places] = own
        place[own] = places
    layout = PackLayout(tree.nodes, form)
    if form.image_blocks != "none" and token_types is not None:
        of_images = torch.isin(token_types.flatten()[source], torch.tensor([1, 2]))
        layout = replace(layout, blocks=image_blocks(of_images, tree.nodes))

    target = pad(losses, (seq - keep, 0)).flatten().nonzero()[:, 0]
    # One score for all loss tokens that have one predicting state and id.
    width = int(ids.max()) + 1
    pairs, score = (place[target - 1] * width + ids[target]).unique(return_inverse=True)
    return Pack(layout, source, pairs // width, pairs % width, score, target, batch, seq, keep)


def image_blocks(of_images: Bool[Tensor, " tokens"], nodes: Sequence[Node]) -> Int[Tensor, " tokens"] | None:
    """Number of the run of image tokens that each token of a pack belongs to, 0 if to none; None of no image.

    Raises:
        CannotPackError: A run goes on from a prompt into a completion.
    """
    begins = of_images.clone()
    begins[1:] &= ~of_images[:-1]
    for node in nodes:
        begins[node.start] = of_images[node.start]
        if node.parent >= 0 and bool(of_images[node.start] & of_images[nodes[node.parent].stop - 1]):
            raise CannotPackError("an image reaches from a prompt into a completion")
    return begins.cumsum(0) * of_images if bool(of_images.any()) else None
