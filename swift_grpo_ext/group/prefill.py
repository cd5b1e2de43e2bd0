"""Generation by groups: each distinct prompt goes through the model once, then its cache is spread out.

The first forward of transformers' ``generate`` has distinct rows only; then every row goes on by itself.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from transformers import Cache

from swift_grpo_ext.group.media import MEDIA_INPUTS, VIDEO_PIXELS, Medium, ModelInputs
from swift_grpo_ext.group.micro_batch import TOKEN_INPUTS, options_of
from swift_grpo_ext.group.shared_prefix import CannotPackError, check_names
from swift_grpo_ext.group.tower_calls import Wanted
from swift_grpo_ext.group.vision import Images, assign_media
from swift_grpo_ext.hugging_face.generation import STEP_INPUTS
from swift_grpo_ext.swap import swapped

_OF_ROWS = (*TOKEN_INPUTS, "attention_mask", "inputs_embeds")  # one entry for each row of the batch
_SPEEDS = ("second_per_grid_ts", "video_second_per_grid")  # an entry for each video
_OF_A_STEP = ("past_key_values", "use_cache", "logits_to_keep", "return_dict", *STEP_INPUTS)

Encoding = Callable[[Wanted], AbstractContextManager[None]]


class Distinct(NamedTuple):
    """The distinct prompts of a batch."""

    inputs: dict[str, Any]  # the model's inputs of these rows alone
    row_of: list[int]  # for each row of the batch the number of its prompt
    wanted: Wanted  # images and videos of the batch, and which of them are the distinct rows', in order


@contextmanager
def shared_prefill(
    model: nn.Module,
    media: Sequence[Medium],
    encoding: Encoding = lambda wanted: nullcontext(),
    tell: Callable[[str], None] = lambda reason: None,
) -> Iterator[None]:
    """While this is open, a prompt that ``model.generate`` is given several times is computed once.

    ``encoding`` is open while images and videos are encoded; ``tell`` gets the reason if prompts are not
    shared.
    """
    forward = model.forward

    def prefill_once(*args: object, **kwargs: Any) -> object:
        cache = kwargs.get("past_key_values")
        if args or (cache is not None and cache.get_seq_length() > 0):
            return forward(*args, **kwargs)  # a later step
        try:
            distinct = find_distinct(kwargs, media)
        except CannotPackError as problem:
            tell(f"prompts were computed once for each completion: {problem}")
            return forward(**kwargs)
        with encoding(distinct.wanted) if distinct.wanted else nullcontext():
            output = forward(**distinct.inputs)
        if len(output.logits) < len(distinct.row_of):
            row_of = torch.tensor(distinct.row_of, device=output.logits.device)
            # In the mode in which the forward made them: later steps update recurrent states in place.
            with torch.inference_mode(output.logits.is_inference()), torch.no_grad():
                spread(output.past_key_values, row_of)
                output.logits = output.logits[row_of]
        return output

    with encoding_inside(model, prefill_once):
        yield


@contextmanager
def encoding_inside(model: nn.Module, forward: Callable[..., object] | None = None) -> Iterator[None]:
    """While this is open, ``model.generate`` encodes images in the prefill, after embedding the text."""
    usual = model.forward
    chosen = forward or usual

    @functools.wraps(usual)
    def inside(*args: object, **kwargs: Any) -> object:
        return chosen(*args, **kwargs)

    # The signature that ``generate`` reads: else transformers 5.19 encodes all images before the prefill.
    signature = inspect.signature(usual)
    kept = [parameter for name, parameter in signature.parameters.items() if name != "mm_encoder_outputs"]
    inside.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    with swapped(model, "forward", inside):
        yield


def spread(cache: Cache, row_of: Int[Tensor, " batch"]) -> None:
    """Give each row the cache of its prompt: keys and values, or the state of recurrent layers."""
    for layer in getattr(cache, "layers", [cache]):
        # Layers with a state know only what beam search asks of them, which is the same.
        select = getattr(layer, "batch_select_indices", None) or layer.reorder_cache
        select(row_of)


def find_distinct(inputs: ModelInputs, media: Sequence[Medium]) -> Distinct:
    """Inputs of the distinct prompts among those of ``generate``.

    Raises:
        CannotPackError: An input is unknown, or the cache cannot be spread over rows.
    """
    names = {name for name, value in inputs.items() if value is not None}
    check_names(names, [*_OF_ROWS, *_OF_A_STEP, *MEDIA_INPUTS, *_SPEEDS, *options_of(inputs)])
    if not hasattr(inputs.get("past_key_values"), "batch_select_indices"):
        raise CannotPackError("generation without a cache of keys and values")
    ids = inputs.get("input_ids")
    mask = inputs.get("attention_mask")
    if ids is None or not ids.shape[1]:  # a template has embedded the text (InternVL's, with a blank image)
        ids = inputs["inputs_embeds"]
    if mask is not None and (not isinstance(mask, Tensor) or mask.ndim != 2):
        raise CannotPackError("a mask made beforehand")
    assigned = assign_media(inputs, media)
    speeds = _SPEEDS if VIDEO_PIXELS in assigned else ()
    paces = {name: torch.as_tensor(inputs[name]) for name in speeds if inputs.get(name) is not None}
    tokens = [tensor.cpu() for tensor in (ids, mask) if tensor is not None]
    prompts = [_prompt(row, tokens, assigned, [*paces.values()]) for row in range(len(ids))]
    first = [prompts.index(prompt) for prompt in prompts]
    rows = sorted(set(first))
    chosen = torch.tensor(rows, device=ids.device)
    kept = {name: _of_rows(value, name, chosen, len(ids)) for name, value in inputs.items()}
    which = {name: images.of_rows(rows) for name, images in assigned.items()}
    shared = assigned if len(rows) < len(ids) else {}  # else pixels are left where they are
    for name, images in shared.items():
        grids = {grid: values.to(ids.device) for grid, values in images.grid_of(which[name]).items()}
        kept |= {name: images.pixels_of(which[name]), **grids}
    kept |= {name: pace[which[VIDEO_PIXELS]] for name, pace in paces.items()}
    wanted = [(images, which[name]) for name, images in assigned.items()]
    return Distinct(kept, [rows.index(row) for row in first], wanted)


def _of_rows(value: Any, name: str, chosen: Int[Tensor, " prompts"], batch: int) -> Any:
    axis = -3 if name == "inputs_embeds" else -2
    if name not in _OF_ROWS or value is None or value.shape[axis] != batch:  # positions: one row for all
        return value
    return value.index_select(value.ndim + axis, chosen)


def _prompt(
    row: int,
    tokens: Sequence[Shaped[Tensor, "batch seq ..."]],  # of ids and of embeddings
    found: Mapping[str, Images],
    paces: Sequence[Float[Tensor, " videos"]],
) -> tuple[object, ...]:
    """Content that a row of the batch shows the model: equal for equal prompts."""
    content = [values[row].contiguous().view(torch.uint8).numpy().tobytes() for values in tokens]
    media = [images.of_row(row) for images in found.values()]
    of_videos = [pace[[*found[VIDEO_PIXELS].rows[row]]].tolist() for pace in paces]
    return content, media, of_videos
