"""From the rows of a micro-batch to a pack: each shared prompt once, followed by its completions.

A completion attends to its prompt and to itself, at the positions that its tokens have in the ordinary batch,
so its log-probs are those of the row it came from. Padding is left out, and so is the last token of each row,
from which nothing is predicted. The same idea for text: PrefixGrouper, arXiv 2506.05433.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from swift_grpo_ext.group.layout import PackForm, PackLayout, Span


class CannotPackError(ValueError):
    """The micro-batch has a form that a pack cannot express; the stock path can."""


@dataclass(frozen=True)
class Row:
    """Columns of one row: ``[start, split)`` is the prompt, ``[split, stop)`` the completion."""

    index: int  # place in the batch
    start: int  # first column that is not padding
    split: int  # column of the first completion token, that is the first that has a loss
    stop: int  # one past the last token that has a loss; equal to ``split`` when there is none


@dataclass(frozen=True)
class Pack:
    """Where every token of a pack comes from and where every log-prob goes."""

    layout: PackLayout  # spans of prompts and completions, for the attention functions
    source: Int[Tensor, " tokens"]  # flat index into a ``(batch, seq)`` tensor of each token of the pack
    predictor: Int[Tensor, " losses"]  # place in the pack of the hidden state that predicts each loss token
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

    def targets(self, input_ids: Int[Tensor, "batch seq"]) -> Int[Tensor, " losses"]:
        """Ids of the loss tokens, from the ids of the ordinary batch."""
        return input_ids.flatten()[self.target]

    def scatter(self, values: Shaped[Tensor, " losses *rest"]) -> Shaped[Tensor, "batch keep *rest"]:
        """Put values of the loss tokens at their places; 0 at all others."""
        rows = values.new_zeros((self.batch * self.keep, *values.shape[1:]))
        return rows.index_copy(0, self.slot, values).unflatten(0, (self.batch, self.keep))


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
    images: Sequence[Hashable] | None = None,
    position_ids: Int[Tensor, "*axes batch seq"] | None = None,
) -> list[list[Row]]:
    """Rows with a loss by equal prompts: tokens, positions (of another frame rate) and ``images``."""
    ids = input_ids.cpu()
    positions = None if position_ids is None else position_ids.cpu()
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        if row.stop > row.split:
            prompt = (..., row.index, slice(row.start, row.split))
            tokens = ids[prompt].numpy().tobytes()
            places = None if positions is None else positions[prompt].numpy().tobytes()
            groups.setdefault((tokens, places, images[row.index] if images else None), []).append(row)
    return list(groups.values())


def build_pack(
    groups: Sequence[Sequence[Row]],
    attention_mask: Shaped[Tensor, "batch seq"],
    completion_mask: Shaped[Tensor, "batch keep"],
    form: PackForm,
    token_types: Int[Tensor, "batch seq"] | None = None,
) -> Pack:
    """Lay the groups out one after another, on the device of the masks.

    ``token_types``, 1 of images and 2 of videos, are read where these see each other.

    Raises:
        CannotPackError: No row has a token with a loss, or an image reaches from a prompt into a
            completion.
    """
    if not groups:
        raise CannotPackError("no row has a completion token with a loss")
    batch, seq = attention_mask.shape
    keep = completion_mask.shape[1]
    spans, indices = _laid_out(groups, completion_mask.bool().cpu(), seq)
    layout = PackLayout(tuple(spans), form)
    if form.image_blocks != "none" and token_types is not None:
        of_images = torch.isin(token_types.flatten().cpu()[indices["source"]], torch.tensor([1, 2]))
        layout = replace(layout, blocks=image_runs(of_images, layout))
    on_device = {name: index.to(attention_mask.device) for name, index in indices.items()}
    return Pack(layout=layout, **on_device, batch=batch, seq=seq, keep=keep)


def _laid_out(
    groups: Sequence[Sequence[Row]], losses: Bool[Tensor, "batch keep"], seq: int
) -> tuple[list[Span], dict[str, Int[Tensor, " _"]]]:
    """Where each group lies in the pack, and the pack's indices by their names in `Pack`."""
    keep = losses.shape[1]
    spans: list[Span] = []
    source = []
    predictor = []
    target = []
    slot = []
    length = 0
    for group in groups:
        first = group[0]
        start = length
        source.append(torch.arange(first.start, first.split) + first.index * seq)
        length += first.split - first.start
        prompt_end = length
        for row in group:
            columns = losses[row.index].nonzero()[:, 0] + seq - keep
            at = columns - row.split + length - 1
            predictor.append(torch.where(columns == row.split, prompt_end - 1, at))
            target.append(columns + row.index * seq)
            slot.append(columns - (seq - keep) + row.index * keep)
            source.append(torch.arange(row.split, row.stop - 1) + row.index * seq)
            length += row.stop - 1 - row.split
        completions = tuple(row.stop - 1 - row.split for row in group)
        spans.append(Span(start, first.split - first.start, completions))
    parts = {"source": source, "predictor": predictor, "target": target, "slot": slot}
    return spans, {name: torch.cat(indices) for name, indices in parts.items()}


def image_runs(of_images: Bool[Tensor, " tokens"], layout: PackLayout) -> tuple[tuple[int, int], ...]:
    """``[start, stop)`` of each run of image tokens in a pack, none of which may reach into a completion.

    Raises:
        CannotPackError: A run goes on from a prompt into a completion.
    """
    runs: list[tuple[int, int]] = []
    start = 0
    open_prompt = False
    for _, branch, length in layout.segments:
        inside = of_images[start : start + length].tolist()
        if branch == 0:
            open_prompt = bool(inside) and inside[-1]
        elif open_prompt and inside and inside[0]:
            raise CannotPackError("an image reaches from a prompt into a completion")
        padded = [False, *inside, False]
        bounds = [start + at for at in range(length + 1) if padded[at] != padded[at + 1]]
        runs += zip(bounds[::2], bounds[1::2], strict=True)
        start += length
    return tuple(runs)
