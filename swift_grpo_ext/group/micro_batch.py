"""Analysis of one collated micro-batch, made once and used by all of its passes."""

from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from swift_grpo_ext.group.interface import pack_mask
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.media import GRIDS, MEDIA_INPUTS, Family, ModelInputs
from swift_grpo_ext.group.shared_prefix import (
    CannotPackError,
    Pack,
    build_pack,
    check_names,
    read_rows,
)
from swift_grpo_ext.group.tree import Row, build_tree, even_parts
from swift_grpo_ext.group.vision import Images, assign_media, image_numbers

# Inputs with a value for each token, gathered; those that only describe padding or packing, left out.
TYPE_INPUTS = ("token_type_ids", "mm_token_type_ids")
TOKEN_INPUTS = ("input_ids", "position_ids", *TYPE_INPUTS)
PACKING_INPUTS = ("text_position_ids", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
ROW_INPUTS = (
    "attention_mask",
    "labels",
    "logits_to_keep",
    "use_cache",
    "second_per_grid_ts",
    *PACKING_INPUTS,
)
_SEEN = {*TOKEN_INPUTS, "attention_mask", "completion_mask", *GRIDS}


class StoredInputs(UserDict[str, Any]):
    """A model's inputs whose pixels (`Images`) lie in the main memory; read whole, on the device."""

    def __getitem__(self, name: str) -> Any:
        value = self.data[name]
        if not isinstance(value, Images):
            return value
        return value.pixels_of(range(len(value.parts))).to(self.data["input_ids"].device)


@dataclass
class MicroBatch:
    """One micro-batch."""

    given: ModelInputs  # the model's inputs as ms-swift collated them
    inputs: ModelInputs  # the same by rows, which without padding lie end to end in ``given``
    completion_mask: Shaped[Tensor, "batch keep"]  # at the time of its first pass
    form: PackForm | None = None  # how the model takes packs; None if nothing is to be packed
    # By the name of the input that holds the pixels; None if they cannot be told apart.
    media: dict[str, Images] | None = None
    # Number of the image that each placeholder stands for, 0 at other tokens; None without images.
    images_at: Int[Tensor, "batch seq"] | None = None
    # Small ``inputs``, and the completion mask, in the main memory: what is decided by.
    seen: ModelInputs = field(default_factory=dict)
    shares: bool = False  # its rows have tokens in common, so that a pack of them has fewer
    pack: Pack | None = None  # its pack; None if nothing is shared or it cannot be packed
    # Images that the forward needs, in order: those of the pack, or of all rows.
    order: dict[str, list[int]] = field(default_factory=dict)
    reason: str = ""  # why it cannot be packed; empty if it can, or has nothing to share

    def wanted(self) -> list[tuple[Images, list[int]]] | None:
        """Images that the forward needs, in order, for each medium; None if they cannot be told apart."""
        if self.media is None:
            return None
        return [(self.media[name], which) for name, which in self.order.items() if which]

    def forward_inputs(self, encoded: bool) -> dict[str, Any]:
        """Inputs of the forward: packed if there is a pack; without pixels where features stand in."""
        of_rows = {"use_cache": False, "logits_to_keep": self.completion_mask.shape[1] + 1}
        if self.media is None:
            return {**self.inputs, **of_rows}
        media = self._media(self.order, encoded)
        if self.pack:
            return pack_inputs(self.text_inputs(), self.pack, media)
        return {**self.text_inputs(), **media, **of_rows}

    def row_inputs(self, rows: range) -> dict[str, Any]:
        """Inputs of some rows as ms-swift would collate them (without padding one at a time), with pixels."""
        assert self.media is not None
        kept = {
            name: value[..., rows.start : rows.stop, :]
            for name, value in self.text_inputs().items()
            if isinstance(value, Tensor) and value.ndim > 1
        }
        of_row = {name: images.of_rows(rows) for name, images in self.media.items()}
        chosen = as_flat_row(kept) if is_flat(self.given) else kept
        return chosen | options_of(self.inputs) | self._media(of_row, False)

    def store_pixels(self) -> StoredInputs:
        """Bring the pixels out of the device's memory; the inputs, which give them to whoever reads them."""
        assert self.media is not None
        self.media = {name: images.stored_once() for name, images in self.media.items()}
        self.inputs = self.text_inputs()
        others = {name: self.given[name] for name in self.given if name not in self.media}
        self.given = StoredInputs(others | self.media)
        return self.given

    def text_inputs(self) -> dict[str, Any]:
        """The inputs without those of the images."""
        return {name: value for name, value in self.inputs.items() if name not in MEDIA_INPUTS}

    def _media(self, chosen: Mapping[str, Sequence[int]], encoded: bool) -> dict[str, Any]:
        inputs: dict[str, Any] = {}
        for name, images in (self.media or {}).items():
            if which := chosen.get(name):
                # Of one row: transformers 5.16 repeats features of MiniCPM-V once for each row of pixels.
                pixels = images.parts[0].new_empty(1, 0) if encoded else images.pixels_of(which)
                device = self.inputs["input_ids"].device
                inputs[name] = pixels.to(device, non_blocking=True)
                grids = images.grid_of(which)
                inputs |= {grid: values.to(device, non_blocking=True) for grid, values in grids.items()}
        return inputs


def analyse(
    inputs: ModelInputs,
    completion_mask: Shaped[Tensor, "batch keep"],
    family: Family | None,
    form: PackForm | None,
) -> MicroBatch:
    """Find the images and the groups of a micro-batch, whose tokens and images are compared."""
    rows = as_rows(inputs, *completion_mask.shape) if is_flat(inputs) else inputs
    batch = MicroBatch(inputs, rows, completion_mask, form)
    try:
        batch.seen = seen = seen_from_host({**rows, "completion_mask": completion_mask})
        batch.media = _media_of(rows, seen, family)
        batch.order = {name: [*range(len(images.keys))] for name, images in (batch.media or {}).items()}
        if form:
            if batch.media:
                batch.images_at = image_numbers(
                    [*batch.media.values()], seen["input_ids"], seen.get("position_ids")
                )
            own = _rows_of(batch)
            batch.shares = build_tree(own).length < sum(row.tokens for row in own)
            if is_flat(inputs) or batch.shares:
                batch = _packed(batch, own)
    except CannotPackError as problem:
        batch.reason = str(problem)
    return batch


def parts_of(batch: MicroBatch, tokens: Bool[Tensor, "batch keep"] | None, number: int) -> list[MicroBatch]:
    """Split a micro-batch into ``number`` packs for a pass: all completions, or only those of ``tokens``.

    Raises:
        CannotPackError: The completions of ``tokens`` cannot be taken out.
    """
    needed = batch if tokens is None else narrowed(batch, tokens)
    return [needed] if number == 1 else in_parts(needed, number)


def narrowed(batch: MicroBatch, tokens: Bool[Tensor, "batch keep"]) -> MicroBatch:
    """The same with the completions of ``tokens`` only; of two tokens if ``tokens`` selects none.

    Raises:
        CannotPackError: Images cannot be told apart, or the chosen tokens do not make a pack.
    """
    if batch.media is None:
        raise CannotPackError("images that cannot be told apart")
    seen = tokens.cpu()
    is_empty = not seen.any()
    if is_empty:  # something has to run, or this rank would call the model less often than the others
        losses = batch.seen["completion_mask"]
        if not losses.any():
            losses = batch.seen["attention_mask"][:, -losses.shape[1] :]
        seen = first_token(losses)
        tokens = seen.to(tokens.device)
    chosen = replace(batch, completion_mask=tokens, seen={**batch.seen, "completion_mask": seen})
    rows = _rows_of(chosen)
    if is_empty:
        rows = [Row(row.keys[:, -1:], 1, row.start + row.tokens - 1) for row in rows]
    return _packed(chosen, rows, {} if is_empty else None)


def first_token(completion_mask: Shaped[Tensor, "batch keep"]) -> Bool[Tensor, "batch keep"]:
    """True at the first token of the first row that has one, and nowhere else."""
    losses = completion_mask.bool()
    return losses & (losses.flatten().cumsum(0) == 1).view_as(losses)


def in_parts(batch: MicroBatch, parts: int) -> list[MicroBatch]:
    """Packs of some rows each, which together have all completions.

    The whole micro-batch by itself if it cannot be packed.
    """
    mask = batch.completion_mask
    try:
        rows = _rows_of(batch)
        which = batch.seen["completion_mask"].any(1).nonzero()[:, 0].to(mask.device)
        # The same number of parts on every rank, because each part calls the model.
        chosen = [which[part.start : part.stop] for part in even_parts(rows, parts)]
        return [narrowed(batch, torch.zeros_like(mask).index_copy(0, part, mask[part])) for part in chosen]
    except CannotPackError:
        return [batch]


def seen_from_host(inputs: ModelInputs) -> dict[str, Shaped[Tensor, "..."]]:
    """Copy the inputs that decisions need to host memory: ids, masks, positions and grids, not pixels.

    All in one copy, because the host waits for the GPU at each.
    """
    small = {name: value for name, value in inputs.items() if name in _SEEN and isinstance(value, Tensor)}
    whole = torch.cat([value.flatten().long() for value in small.values()]).cpu()
    parts = iter(whole.split([value.numel() for value in small.values()]))
    return {name: next(parts).view(value.shape).to(value.dtype) for name, value in small.items()}


def _media_of(inputs: ModelInputs, seen: ModelInputs, family: Family | None) -> dict[str, Images] | None:
    if family is None:
        return None if set(inputs) - {*TOKEN_INPUTS, *ROW_INPUTS} else {}
    check_names(inputs, [*TOKEN_INPUTS, *ROW_INPUTS, *MEDIA_INPUTS, *options_of(inputs)])
    return assign_media({**inputs, **seen}, family.media)


def _rows_of(batch: MicroBatch) -> list[Row]:
    """Rows of a micro-batch that have a loss."""
    seen = batch.seen
    ids, present, losses = seen["input_ids"], seen["attention_mask"], seen["completion_mask"]
    return read_rows(ids, present, losses, batch.images_at, seen.get("position_ids"))


def _packed(
    batch: MicroBatch,
    rows: Sequence[Row],
    media: Mapping[str, Images] | None = None,
) -> MicroBatch:
    """The same with a pack of these rows, in which ``media`` (all, unless they are given) stand."""
    assert batch.form is not None
    seen = batch.seen
    # What the model reads decides which tokens see each other, not where its images are.
    types = next(iter(token_types(seen).values()), None)
    pack = build_pack(rows, seen["input_ids"], seen["completion_mask"], batch.form, types)
    shown = (batch.media or {}) if media is None else media
    order = {name: images_in_order(images, pack) for name, images in shown.items()}
    pack = pack.on(batch.completion_mask.device)
    pack_inputs(batch.text_inputs(), pack, {})  # raises for an input that it does not know
    return replace(batch, pack=pack, order=order)


def images_in_order(images: Images, pack: Pack) -> list[int]:
    """Images of a pack: of each node those of the row that it is taken from.

    Raises:
        CannotPackError: An image reaches over the end of a prompt or of a completion.
    """
    places = images.places.flatten()[pack.source]
    order, tokens = places[places >= 0].unique_consecutive(return_counts=True)
    if [images.tokens[image] for image in order.tolist()] != tokens.tolist():
        raise CannotPackError("an image reaches from a prompt into a completion, or beyond it")
    return order.tolist()


def pack_inputs(inputs: ModelInputs, pack: Pack, media: ModelInputs) -> dict[str, Any]:
    """The model's inputs for a pack, and ``media`` of its images.

    Raises:
        CannotPackError: An input has another name than those that packs are made of.
    """
    options = options_of(inputs)
    of_tokens = {name: inputs[name] for name in ("input_ids", "position_ids") if name in inputs}
    of_tokens |= token_types(inputs)
    check_names(inputs, [*TOKEN_INPUTS, *ROW_INPUTS, *options, *media])
    packed = {name: pack.gather(values) for name, values in of_tokens.items()}
    if "position_ids" not in packed:  # the place of each token in its row, from the first that is not padding
        packed["position_ids"] = pack.gather(inputs["attention_mask"].long().cumsum(-1) - 1)
    return {
        **packed,
        **options,
        **media,
        "attention_mask": pack_mask(pack.layout, pack.source.device),
        "logits_to_keep": pack.predictor,
        "use_cache": False,
    }


def token_types(inputs: ModelInputs) -> dict[str, Int[Tensor, "batch seq"]]:
    """Inputs with the type of each token.

    ms-swift's GLM-4.5V hands over types of the image's tokens alone, which the model does not look at.
    """
    by_name = {name: inputs[name] for name in TYPE_INPUTS if name in inputs}
    return {name: types for name, types in by_name.items() if types.shape == inputs["input_ids"].shape}


def options_of(inputs: ModelInputs) -> dict[str, str]:
    """Inputs that say how, in words, such as MiniCPM-V's ``downsample_mode``: the same for rows and packs."""
    return {name: value for name, value in inputs.items() if isinstance(value, str)}


def is_flat(inputs: ModelInputs) -> bool:
    """True for rows end to end, without padding: such inputs have no mask."""
    return "attention_mask" not in inputs


def as_rows(inputs: ModelInputs, batch: int, keep: int) -> dict[str, Any]:
    """The inputs, ``(..., 1, total)`` without padding, as a collated batch with padding on the left would be.

    Places begin at 0 in each row; ``keep`` columns are of completions. Images stay as they are.

    Raises:
        CannotPackError: The places of the tokens are missing, or begin at 0 more or less than ``batch``
            times.
    """
    places = inputs.get("text_position_ids", inputs.get("position_ids"))
    total = inputs["input_ids"].shape[-1]
    if places is None or places.numel() != total:
        raise CannotPackError("rows without padding and without places of their tokens")
    starts = (places.flatten() == 0).nonzero()[:, 0]
    if len(starts) != batch:
        raise CannotPackError(f"{len(starts)} rows without padding for {batch} completions")
    ends = torch.cat([starts[1:], starts.new_tensor([total])])
    width = max(int((ends - starts).max()), keep)
    source = ends[:, None] + torch.arange(-width, 0, device=starts.device)
    present = source >= starts[:, None]

    rows = {name: value for name, value in inputs.items() if name not in PACKING_INPUTS}
    for name in set(TOKEN_INPUTS) & set(rows):
        if rows[name].ndim > 1 and rows[name].shape[-2:] == (1, total):
            rows[name] = rows[name].squeeze(-2)[..., source.clamp(min=0)] * present
    return {**rows, "attention_mask": present.long()}


def as_flat_row(inputs: ModelInputs) -> dict[str, Any]:
    """The inputs of a single row without its padding on the left, as ms-swift would hand it over alone."""
    start = int(inputs["attention_mask"].int().argmax())
    return {
        name: value[..., start:] if name in TOKEN_INPUTS else value
        for name, value in inputs.items()
        if name != "attention_mask"
    }
