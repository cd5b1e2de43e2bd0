"""Rows without padding (``padding_free``): ms-swift lays those of a micro-batch end to end, as one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from swift_grpo_ext.group.forward import PACKING_INPUTS, TOKEN_INPUTS
from swift_grpo_ext.group.shared_prefix import CannotPackError


def is_flat(inputs: Mapping[str, object]) -> bool:
    """Without padding there is no mask of it."""
    return "attention_mask" not in inputs


def as_rows(inputs: Mapping[str, Tensor], batch: int, keep: int) -> dict[str, Tensor]:
    """The inputs as a collated batch with padding on the left would have them; those of images as they are.

    ``inputs`` are ``(..., 1, total)``, with places that start again at 0 in each row. ms-swift counts the
    ``keep`` columns of the completions from the end of each row.
    """
    places = inputs.get("text_position_ids", inputs.get("position_ids"))
    total = inputs["input_ids"].shape[-1]
    if places is None or places.numel() != total:
        raise CannotPackError("rows without padding and without places of their tokens")
    starts = (places.flatten() == 0).nonzero()[:, 0]
    if len(starts) != batch:
        raise CannotPackError(f"{len(starts)} rows without padding for {batch} completions")
    lengths = torch.cat([starts[1:], starts.new_tensor([total])]) - starts
    width = max(int(lengths.max()), keep)
    columns = torch.arange(width, device=starts.device) - (width - lengths[:, None])
    present = columns >= 0
    source = starts[:, None] + columns.clamp(min=0)

    def padded(value: Tensor) -> Tensor:
        return value.squeeze(-2)[..., source] * present

    rows = {
        name: padded(value)
        if name in TOKEN_INPUTS and value.ndim > 1 and value.shape[-2:] == (1, total)
        else value
        for name, value in inputs.items()
        if name not in PACKING_INPUTS
    }
    return {**rows, "attention_mask": present.long()}


def as_flat_row(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of a single row without its padding on the left, as ms-swift would hand it over alone."""
    start = int(inputs["attention_mask"].int().argmax())
    return {
        name: value[..., start:] if name in TOKEN_INPUTS else value
        for name, value in inputs.items()
        if name != "attention_mask"
    }
