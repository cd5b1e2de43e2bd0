"""What is known of one collated micro-batch, found out once and used by all of its passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from swift_grpo_ext.group.family import GRID_OF, MEDIA_INPUTS, Family
from swift_grpo_ext.group.forward import ROW_INPUTS, TOKEN_INPUTS, TYPE_INPUTS, pack_inputs
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.shared_prefix import (
    CannotPackError,
    Pack,
    Row,
    build_pack,
    find_groups,
    read_rows,
)
from swift_grpo_ext.group.vision import Images, assign


class StoredInputs(MutableMapping[str, Any]):
    """A model's inputs whose pixels lie in the main memory, those of equal images once.

    Whoever reads the pixels gets all of them, on the device of the tokens.

    Args:
        text: Inputs other than those of images.
        grids: Grids of the images.
        media: The images, by the name of the input that holds their pixels.
    """

    def __init__(
        self, text: Mapping[str, Any], grids: Mapping[str, Any], media: Mapping[str, Images]
    ) -> None:
        self._plain = {**text, **grids}
        self._media = dict(media)

    def __getitem__(self, name: str) -> Any:
        if name not in self._media:
            return self._plain[name]
        images = self._media[name]
        return images.pick(range(len(images.parts)))[0].to(self._plain["input_ids"].device)

    def __setitem__(self, name: str, value: Any) -> None:
        self._media.pop(name, None)
        self._plain[name] = value

    def __delitem__(self, name: str) -> None:
        del (self._media if name in self._media else self._plain)[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._plain
        yield from self._media

    def __len__(self) -> int:
        return len(self._plain) + len(self._media)


@dataclass
class MicroBatch:
    """One micro-batch.

    Attributes:
        inputs: The model's inputs as the host collated them.
        completion_mask: ``(batch, keep)`` at the time of its first pass.
        media: Images and videos, by the name of the input that holds the pixels; None if they cannot be told
            apart, or whose family is unknown.
        pack: Its pack; None if no prompt is shared or it cannot be packed.
        reason: Why it cannot be packed; empty if it can, or has nothing to share.
    """

    inputs: Mapping[str, Any]
    completion_mask: Tensor
    media: dict[str, Images] | None
    pack: Pack | None = None
    reason: str = ""

    @property
    def rows(self) -> Sequence[int]:
        """Rows whose images the forward needs: one of each group, or all."""
        return self.pack.representatives if self.pack else range(len(self.completion_mask))

    def wanted(self) -> list[tuple[Images, list[int]]] | None:
        """Images that the forward needs, in order, for each medium; None if they cannot be told apart."""
        if self.media is None:
            return None
        chosen = [(images, images.of_rows(self.rows)) for images in self.media.values()]
        return [(images, which) for images, which in chosen if which]

    def forward_inputs(self, encoded: bool) -> dict[str, Any]:
        """Inputs of the forward: packed if there is a pack, else those of the host.

        Args:
            encoded: Leave the pixels out, for features stand in for them.
        """
        if self.media is None:
            return {**self.inputs, "use_cache": False}
        media = self._media(self.rows, encoded)
        if self.pack:
            return pack_inputs(self.text_inputs(), self.pack, media)
        return {**self.text_inputs(), **media, "use_cache": False}

    def row_inputs(self, row: int) -> dict[str, Any]:
        """Inputs of one row alone, with its pixels. Not where ``media`` is None."""
        assert self.media is not None
        text = self.text_inputs().items()
        kept = {name: value for name, value in text if isinstance(value, Tensor) and value.ndim > 1}
        return {name: value[..., row : row + 1, :] for name, value in kept.items()} | self._media(
            [row], False
        )

    def store_pixels(self) -> StoredInputs:
        """Bring the pixels out of the device's memory; the inputs, which give them to whoever reads them."""
        assert self.media is not None
        self.media = {name: images.stored_once() for name, images in self.media.items()}
        stored = StoredInputs(self.text_inputs(), self._grids(), self.media)
        self.inputs = stored
        return stored

    def text_inputs(self) -> dict[str, Any]:
        """The inputs without those of the images."""
        return {name: self.inputs[name] for name in self.inputs if name not in MEDIA_INPUTS}

    def _grids(self) -> dict[str, Any]:
        return {name: self.inputs[name] for name in GRID_OF.values() if name in self.inputs}

    def _media(self, rows: Sequence[int], encoded: bool) -> dict[str, Any]:
        inputs: dict[str, Any] = {}
        for pixels_name, images in (self.media or {}).items():
            which = images.of_rows(rows)
            if not which:
                continue
            pixels = self._no_pixels(images) if encoded else images.pick(which)[0]
            inputs[pixels_name] = pixels.to(self.inputs["input_ids"].device)
            if images.grid is not None:
                inputs[GRID_OF[pixels_name]] = images.grid_of(which)
        return inputs

    @staticmethod
    def _no_pixels(images: Images) -> Tensor:
        return images.parts[0].new_empty(0)


def analyse(
    inputs: Mapping[str, Any],
    completion_mask: Tensor,
    family: Family | None,
    form: PackForm | None,
) -> MicroBatch:
    """Find the images and the groups of a micro-batch.

    Args:
        inputs: The model's inputs as the host collated them.
        completion_mask: ``(batch, keep)``.
        family: The model's family; None for a language model.
        form: How the model takes packs; None to make none.
    """
    try:
        media = _media_of(inputs, family)
        batch = MicroBatch(inputs, completion_mask, media)
    except CannotPackError as problem:
        return MicroBatch(inputs, completion_mask, None, reason=str(problem))
    if form:
        try:
            batch.pack = _pack_of(batch, family, form)
        except CannotPackError as problem:
            batch.reason = str(problem)
    return batch


def _media_of(inputs: Mapping[str, Any], family: Family | None) -> dict[str, Images] | None:
    if family is None:  # a language model, or a family whose images nobody here can tell apart
        return None if set(inputs) - {*TOKEN_INPUTS, *ROW_INPUTS} else {}
    media = {}
    for medium in family.media:
        if inputs.get(medium.pixels) is not None:
            placeholders = (inputs["input_ids"] == medium.token_id).sum(1)
            media[medium.pixels] = assign(placeholders, inputs[medium.pixels], inputs.get(medium.grid))
    return media


def _pack_of(batch: MicroBatch, family: Family | None, form: PackForm) -> Pack | None:
    ids, attention_mask = batch.inputs["input_ids"], batch.inputs["attention_mask"]
    rows = read_rows(attention_mask, batch.completion_mask)
    if family is not None:
        _check_completions(ids, rows, family)
    media = (batch.media or {}).values()
    keys = [tuple(images.of_row(row.index) for images in media) for row in rows]
    groups = find_groups(ids, rows, keys, batch.inputs.get("position_ids"))
    if all(len(group) == 1 for group in groups):
        return None
    types = next((batch.inputs[name] for name in TYPE_INPUTS if name in batch.inputs), None)
    pack = build_pack(groups, attention_mask, batch.completion_mask, form, types)
    pack_inputs(batch.text_inputs(), pack, {})  # raises for an input that it does not know
    return pack


def _check_completions(ids: Tensor, rows: list[Row], family: Family) -> None:
    special = torch.isin(ids, torch.tensor(family.placeholder_token_ids, device=ids.device)).cpu()
    for row in rows:
        if special[row.index, row.split : row.stop].any():
            raise CannotPackError("a completion has images in it")
