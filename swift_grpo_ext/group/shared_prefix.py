"""From the rows of a micro-batch to a pack: what rows begin with alike once, followed by what they part in.

A completion attends to its prompt and to itself, at the positions that its tokens have in the ordinary batch,
so its log-probs are those of the row it came from. Padding is left out, and so is the last token of each row,
from which nothing is predicted. The same idea for prompts of text: PrefixGrouper, arXiv 2506.05433.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.nn.functional import pad

from swift_grpo_ext.group.layout import PackForm, PackLayout
from swift_grpo_ext.group.tree import WORTH, Line, Tree, build_tree


class CannotPackError(ValueError):
    """The micro-batch has a form that a pack cannot express; the stock path can."""


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse inputs of a model that nobody here knows.

    Raises:
        CannotPackError: A ``given`` name is none of the ``known`` ones.
    """
    if unknown := set(given) - set(known):
        raise CannotPackError(f"model inputs {', '.join(sorted(unknown))}")


@dataclass(frozen=True)
class Row:
    """Columns of one row: ``[start, split)`` is the prompt, ``[split, stop)`` the completion."""

    index: int  # place in the batch
    start: int  # first column that is not padding
    split: int  # column of the first completion token, that is the first that has a loss
    stop: int  # one past the last token that has a loss; equal to ``split`` when there is none
    # Of its columns from ``start`` to ``stop``: id, positions and image of each.
    keys: Int[Tensor, "fields columns"] = field(default_factory=lambda: torch.zeros(1, 0).long(), repr=False)

    @property
    def tokens(self) -> int:
        """Its tokens in a pack, were none of them shared."""
        return self.stop - 1 - self.start

    def line(self, group: int) -> Line:
        """As the tree sees it, once its keys are known; rows of a ``group`` have one prompt."""
        return Line(self.keys[:, :-1], self.split - self.start, group)


@dataclass(frozen=True)
class Pack:
    """Where every token of a pack comes from and where every log-prob goes."""

    layout: PackLayout  # nodes of shared tokens, for the attention functions
    source: Int[Tensor, " tokens"]  # flat index into a ``(batch, seq)`` tensor of each token of the pack
    predictor: Int[Tensor, " scored"]  # places in the pack of the hidden states that predict loss tokens
    scored: Int[Tensor, " scored"]  # number of a loss token that each of these predicts
    score: Int[Tensor, " losses"]  # number of the score of each loss token: rows that share a token share it
    target: Int[Tensor, " losses"]  # flat index into ``(batch, seq)`` of each loss token
    slot: Int[Tensor, " losses"]  # flat index into ``(batch, keep)`` of each loss token
    batch: int  # rows of the ordinary batch
    seq: int  # its width
    keep: int  # and that of its completion region

    def gather(self, rows: Shaped[Tensor, "*before batch seq"]) -> Shaped[Tensor, "*before 1 tokens"]:
        """Take the pack's tokens out of the ordinary batch.

        Raises:
            CannotPackError: The tensor is not of the pack's batch.
        """
        if rows.shape[-2:] != (self.batch, self.seq):
            raise CannotPackError(f"expected (..., {self.batch}, {self.seq}), got {tuple(rows.shape)}")
        return rows.flatten(-2)[..., self.source].unsqueeze(-2)

    def targets(self, input_ids: Int[Tensor, "batch seq"]) -> Int[Tensor, " scored"]:
        """Ids of the tokens to score, from the ids of the ordinary batch."""
        return input_ids.flatten()[self.target[self.scored]]

    def scatter(self, values: Shaped[Tensor, " scored *rest"]) -> Shaped[Tensor, "batch keep *rest"]:
        """Put values of the scored tokens at the places of all loss tokens; 0 at all others."""
        rows = values.new_zeros((self.batch * self.keep, *values.shape[1:]))
        of_losses = values.index_select(0, self.score)
        return rows.index_copy(0, self.slot, of_losses).unflatten(0, (self.batch, self.keep))


def read_rows(
    attention_mask: Shaped[Tensor, "batch seq"], completion_mask: Shaped[Tensor, "batch keep"]
) -> list[Row]:
    """Prompt and completion of each row of a collated batch, padded on either side.

    ``completion_mask`` is over the last ``keep`` columns, True where a token has a loss.

    Raises:
        CannotPackError: A row has padding between its tokens, or a completion without a prompt before it.
    """
    present = attention_mask.bool().cpu()
    losses = completion_mask.bool().cpu()
    seq = present.shape[1]
    keep = losses.shape[1]
    length = present.sum(1)
    start = present.int().argmax(1)
    last = seq - present.flip(1).int().argmax(1)
    if bool((last - start != length).any()):
        raise CannotPackError("a row has padding between its tokens")
    split = seq - keep + losses.int().argmax(1)
    stop = seq - losses.flip(1).int().argmax(1)
    has_loss = losses.any(1)
    split = torch.where(has_loss, split, last)
    stop = torch.where(has_loss, stop, last)
    if bool((split <= start).any()) or bool((stop > last).any()):
        raise CannotPackError("a row has no prompt before its completion")
    columns = zip(start.tolist(), split.tolist(), stop.tolist(), strict=True)
    return [Row(index, *of_row) for index, of_row in enumerate(columns)]


def find_groups(
    input_ids: Int[Tensor, "batch seq"],
    rows: Sequence[Row],
    images: Int[Tensor, "batch seq"] | None = None,
    position_ids: Int[Tensor, "*axes batch seq"] | None = None,
) -> list[list[Row]]:
    """Rows with a loss, with their keys, by equal prompts.

    Tokens are equal where their ids and positions (of another frame rate) are, and at placeholders the
    numbers of their ``images``, 0 elsewhere.
    """
    fields = [input_ids.cpu()[None]]
    if position_ids is not None:
        fields.append(position_ids.cpu().reshape(-1, *input_ids.shape))
    if images is not None:
        fields.append(images[None])
    keys = torch.cat(fields).long()
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        if row.stop > row.split:
            of_row = keys[:, row.index, row.start : row.stop]
            prompt = of_row[:, : row.split - row.start].contiguous().numpy().tobytes()
            groups.setdefault(prompt, []).append(replace(row, keys=of_row))
    return list(groups.values())


def tree_of(groups: Sequence[Sequence[Row]], worth: int = WORTH) -> Tree:
    """The tree of the groups' rows, one after another."""
    return build_tree([row.line(number) for number, group in enumerate(groups) for row in group], worth)


def spares(groups: Sequence[Sequence[Row]]) -> bool:
    """Whether a pack of these groups has fewer tokens than their rows."""
    if any(len(group) > 1 for group in groups):
        return True
    return len(groups) > 1 and tree_of(groups).length < sum(row.tokens for group in groups for row in group)


def build_pack(
    groups: Sequence[Sequence[Row]],
    attention_mask: Shaped[Tensor, "batch seq"],
    completion_mask: Shaped[Tensor, "batch keep"],
    form: PackForm,
    token_types: Int[Tensor, "batch seq"] | None = None,
    worth: int = WORTH,
) -> Pack:
    """Lay the tree of the groups' rows out, on the device of the masks.

    ``token_types``, 1 of images and 2 of videos, are read where these see each other; ``worth`` is the least
    number of tokens that a shared run has to spare, but for whole prompts.

    Raises:
        CannotPackError: No row has a token with a loss, or an image reaches from a prompt into a
            completion.
    """
    if not groups:
        raise CannotPackError("no row has a completion token with a loss")
    batch, seq = attention_mask.shape
    losses = completion_mask.bool().cpu()
    keep = losses.shape[1]
    rows = [row for group in groups for row in group]
    tree = tree_of(groups, worth)
    begins = [row.index * seq + row.start for row in rows]
    tokens = [
        torch.arange(node.length) + begins[line] + node.first
        for node, line in zip(tree.nodes, tree.lines, strict=True)
    ]
    source = torch.cat(tokens)
    layout = PackLayout(tree.nodes, form)
    if form.image_blocks != "none" and token_types is not None:
        of_images = torch.isin(token_types.flatten().cpu()[source], torch.tensor([1, 2]))
        layout = replace(layout, blocks=image_runs(of_images, layout))

    place = torch.zeros(batch * seq, dtype=torch.long)  # in the pack, of each token of the batch
    ids = torch.zeros_like(place)
    for row, begin, places in zip(rows, begins, tree.places, strict=True):
        place[begin : begin + row.tokens] = places
        ids[begin : begin + row.tokens + 1] = row.keys[0]
    target = pad(losses, (seq - keep, 0)).flatten().nonzero()[:, 0]
    predictor = place[target - 1]
    # One score for all that have one predicting state and id: its number for each loss token.
    pairs, score = (predictor * (int(ids.max()) + 1) + ids[target]).unique(return_inverse=True)
    scored = torch.zeros_like(pairs).scatter_(0, score, torch.arange(len(target)))
    indices = {
        "source": source,
        "predictor": predictor[scored],
        "scored": scored,
        "score": score,
        "target": target,
        "slot": losses.flatten().nonzero()[:, 0],
    }
    on_device = {name: index.to(attention_mask.device) for name, index in indices.items()}
    return Pack(layout=layout, **on_device, batch=batch, seq=seq, keep=keep)


def image_runs(of_images: Bool[Tensor, " tokens"], layout: PackLayout) -> tuple[tuple[int, int], ...]:
    """``[start, stop)`` of each run of image tokens in a pack, none of which may reach into another node.

    Raises:
        CannotPackError: A run goes on from a prompt into a completion.
    """
    runs: list[tuple[int, int]] = []
    for node in layout.nodes:
        own = of_images[node.start : node.stop]
        if node.parent >= 0 and bool(own[0] & of_images[layout.nodes[node.parent].stop - 1]):
            raise CannotPackError("an image reaches from a prompt into a completion")
        inside, lengths = own.unique_consecutive(return_counts=True)
        stops = lengths.cumsum(0) + node.start
        runs += zip((stops - lengths)[inside].tolist(), stops[inside].tolist(), strict=True)
    return tuple(runs)
