"""Generation by groups: each distinct prompt goes through the model once, then its cache is spread out.

For ``generate`` of transformers with a batch in which prompts repeat. The first forward, over the prompts, is
done with the distinct rows only; cache and logits are then repeated, and every row goes on by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from swift_grpo_ext.group.shared_prefix import CannotPackError
from swift_grpo_ext.group.vision import Images, assign

PIXELS, GRID = "pixel_values", "image_grid_thw"
# Inputs with one entry for each row of the batch, at this axis counted from the end.
_ROW_AXIS = {
    "input_ids": -2,
    "position_ids": -2,
    "mm_token_type_ids": -2,
    "token_type_ids": -2,
}
_PLAIN = ("past_key_values", "use_cache", "logits_to_keep", "return_dict", PIXELS, GRID, "attention_mask")


@contextmanager
def shared_prefill(model: nn.Module, image_token: int | None) -> Iterator[None]:
    """While this is open, a prompt that ``model.generate`` is given several times is computed once.

    Args:
        model: The model that generates, out of PEFT and other wrappers.
        image_token: Placeholder of images; None for a language model.
    """
    forward, own = model.forward, vars(model).get("forward")

    @functools.wraps(forward)  # generate reads the signature
    def prefill_once(*args: Any, **kwargs: Any) -> Any:
        found = None if args else _distinct(kwargs, image_token)
        if found is None:
            return forward(*args, **kwargs)
        inputs, row_of = found
        output = forward(**inputs)
        output.past_key_values.batch_select_indices(row_of)
        output.logits = output.logits[row_of]
        return output

    model.forward = prefill_once
    try:
        yield
    finally:
        if own is None:
            del model.forward
        else:
            model.forward = own


def _distinct(inputs: dict[str, Any], image_token: int | None) -> tuple[dict[str, Any], Tensor] | None:
    """Inputs of the distinct prompts, and for each row the number of its own; None to go on as usual."""
    ids, cache = inputs.get("input_ids"), inputs.get("past_key_values")
    given = {name for name, value in inputs.items() if value is not None}
    if ids is None or cache is None or cache.get_seq_length() > 0 or given - {*_ROW_AXIS, *_PLAIN}:
        return None
    mask = inputs.get("attention_mask")
    if len(ids) == 1 or not hasattr(cache, "batch_select_indices") or isinstance(mask, dict):
        return None
    try:
        images = _images_of(inputs, image_token)
    except CannotPackError:
        return None
    rows, row_of = _distinct_rows(ids, mask, images)
    if len(rows) == len(ids):
        return None
    chosen = torch.tensor(rows, device=ids.device)
    kept = dict(inputs)
    for name, axis in _ROW_AXIS.items():
        if inputs.get(name) is not None and inputs[name].shape[axis] == len(ids):
            kept[name] = inputs[name].index_select(inputs[name].ndim + axis, chosen)
    if mask is not None:
        kept["attention_mask"] = mask.index_select(0, chosen)
    if images is not None and (which := images.of_rows(rows)):
        kept[PIXELS], grid = images.pick(which)
        if grid is not None:
            kept[GRID] = grid
    return kept, torch.tensor(row_of, device=ids.device)


def _images_of(inputs: dict[str, Any], image_token: int | None) -> Images | None:
    if inputs.get(PIXELS) is None:
        return None
    placeholders = (inputs["input_ids"] == image_token).sum(1)
    return assign(placeholders, inputs[PIXELS], inputs.get(GRID))


def _distinct_rows(ids: Tensor, mask: Tensor | None, images: Images | None) -> tuple[list[int], list[int]]:
    """Rows of the first appearance of each prompt, and for each row its place among them."""
    tokens = ids.cpu()
    shown = torch.ones_like(tokens) if mask is None else mask.flatten(1).cpu()
    first: dict[Any, int] = {}
    row_of = []
    for row in range(len(tokens)):
        key = (tokens[row].numpy().tobytes(), shown[row].numpy().tobytes(), images and images.of_row(row))
        row_of.append(first.setdefault(key, len(first)))
    rows = [row_of.index(number) for number in range(len(first))]
    return rows, row_of
