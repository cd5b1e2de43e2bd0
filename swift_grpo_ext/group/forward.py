"""One forward of a pack: from the inputs of the ordinary batch to log-probs in its shape."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutput

from swift_grpo_ext.group.interface import pack_mask
from swift_grpo_ext.group.logps import TokenQuery, scores_for_logits
from swift_grpo_ext.group.media import ModelInputs
from swift_grpo_ext.group.shared_prefix import CannotPackError, Pack, check_names

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


def pack_inputs(inputs: ModelInputs, pack: Pack, media: ModelInputs) -> dict[str, Any]:
    """The model's inputs for a pack, and ``media`` of its images.

    Raises:
        CannotPackError: An input has another name than those that packs are made of.
    """
    options = options_of(inputs)
    check_names(inputs, [*TOKEN_INPUTS, *ROW_INPUTS, *options, *media])
    of_tokens = {name: inputs[name] for name in ("input_ids", "position_ids") if name in inputs}
    packed = {name: pack.gather(values) for name, values in (of_tokens | token_types(inputs)).items()}
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
    """Inputs that say of each token what it is.

    ms-swift's GLM-4.5V hands over types of the image's tokens alone, which the model does not look at.
    """
    given = {name: inputs[name] for name in TYPE_INPUTS if name in inputs}
    return {name: types for name, types in given.items() if types.shape == inputs["input_ids"].shape}


def options_of(inputs: ModelInputs) -> dict[str, str]:
    """Inputs that say how, in words, such as MiniCPM-V's ``downsample_mode``: the same for rows and packs."""
    return {name: value for name, value in inputs.items() if isinstance(value, str)}


def is_flat(inputs: ModelInputs) -> bool:
    """Without padding there is no mask of it."""
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


def packed_scores(
    model: Callable[..., CausalLMOutput],
    head: nn.Module,
    inputs: ModelInputs,
    pack: Pack,
    **options: Any,
) -> Float[Tensor, "batch keep 2"]:
    """Run the model over a pack: log-prob and entropy in fp32, 0 where there is no loss.

    ``options`` are those of `TokenQuery`.
    """
    kept = "logits_to_keep" in inputs

    def select(hidden: Float[Tensor, "1 _ hidden"]) -> Float[Tensor, "losses hidden"]:
        return hidden[0] if kept else hidden[0, pack.predictor]

    with scores_for_logits(head, TokenQuery(pack.ids, **options), select):
        return pack.scatter(model(**inputs).logits)


def row_scores(
    model: Callable[..., CausalLMOutput],
    head: nn.Module,
    inputs: ModelInputs,
    completion_mask: Shaped[Tensor, "batch keep"],
    **options: Any,
) -> Float[Tensor, "batch keep 2"]:
    """The scores of `packed_scores` through the ordinary batch; ``options`` as in `TokenQuery`."""
    losses = completion_mask.bool()
    keep = losses.shape[1]
    query = TokenQuery(inputs["input_ids"][:, -keep:][losses], **options)
    with scores_for_logits(head, query, lambda hidden: hidden[:, -keep - 1 : -1][losses]):
        scores = model(**inputs).logits
    return scores.new_zeros(*losses.shape, 2).masked_scatter(losses[..., None], scores)
