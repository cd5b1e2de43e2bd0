"""Attention over a pack: every completion sees its prompt and its own past, and nothing else.

All functions of `BACKENDS` compute the same thing, in layers that see everything before, with a sliding
window, and where the tokens of an image see each other (`Visibility`):

    dense     SDPA with a (T, T) mask: the reference
    two_part  SDPA, prompts first, then the completions as a batch over prompt and own keys; no (T, T) mask
    flex      FlexAttention with a block mask made from the spans; for GPUs
    varlen    one call of a variable-length flash kernel; for GPUs
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.group.attention_gpu import flex, varlen
from swift_grpo_ext.group.layout import (
    CAUSAL,
    PackLayout,
    Span,
    Visibility,
    completions_mask,
    visible,
)

Attend = Callable[..., Float[Tensor, "1 heads tokens value_dim"]]  # of the arguments of `dense`


def dense(
    query: Float[Tensor, "1 heads tokens dim"],
    key: Float[Tensor, "1 kv_heads tokens dim"],
    value: Float[Tensor, "1 kv_heads tokens value_dim"],
    layout: PackLayout,
    scale: float | None,
    visibility: Visibility,
) -> Float[Tensor, "1 heads tokens value_dim"]:
    """SDPA with the whole ``(T, T)`` mask."""
    mask = layout.once(
        ("dense", visibility, query.device), lambda: visible(layout, visibility).to(query.device)
    )
    return _sdpa(query, key, value, scale, mask)


def two_part(
    query: Float[Tensor, "1 heads tokens dim"],
    key: Float[Tensor, "1 kv_heads tokens dim"],
    value: Float[Tensor, "1 kv_heads tokens value_dim"],
    layout: PackLayout,
    scale: float | None,
    visibility: Visibility,
) -> Float[Tensor, "1 heads tokens value_dim"]:
    """SDPA of each prompt, then of its completions as a batch over its keys (copied) and own ones."""
    sizes = [size for span in layout.spans for size in (span.prompt, sum(span.completions))]
    parts = list(zip(*(tensor.split(sizes, 2) for tensor in (query, key, value)), strict=True))
    done = []
    for span, (q, k, v), completions in zip(layout.spans, parts[::2], parts[1::2], strict=True):
        mask = _prompt_mask(span, layout, visibility, query.device)
        done.append(_sdpa(q, k, v, scale, mask, mask is None))
        if sum(span.completions):
            done.append(_attend_completions(completions, k, v, span, layout, scale, visibility))
    return torch.cat(done, 2)


def _attend_completions(
    completions: tuple[Float[Tensor, "1 _ completions _"], ...],
    key: Float[Tensor, "1 kv_heads prompt dim"],
    value: Float[Tensor, "1 kv_heads prompt value_dim"],
    span: Span,
    layout: PackLayout,
    scale: float | None,
    visibility: Visibility,
) -> Float[Tensor, "1 heads completions value_dim"]:
    """Attention of one group's completions, whose queries, keys and values are ``completions``."""
    own_query, own_key, own_value = (layout.to_rows(part, span, 2)[0].transpose(0, 1) for part in completions)
    rows, _, width, _ = own_query.shape
    if visibility.window is not None:  # no completion sees more of its prompt
        seen = min(span.prompt, visibility.window - 1)
        key, value = (part[:, :, span.prompt - seen :] for part in (key, value))
    keys = torch.cat([key.expand(rows, -1, -1, -1), own_key], 2)
    values = torch.cat([value.expand(rows, -1, -1, -1), own_value], 2)
    if visibility == CAUSAL and key.is_cuda and key.dtype != torch.float32:
        from torch.nn.attention.bias import causal_lower_right

        bias = causal_lower_right(width, keys.shape[2])  # reaches the flash kernel without a mask in memory
        grouped = own_query.shape[1] != keys.shape[1]
        out = scaled_dot_product_attention(own_query, keys, values, bias, scale=scale, enable_gqa=grouped)
    else:
        out = _sdpa(own_query, keys, values, scale, completions_mask(layout, span, visibility, key.device))
    return layout.to_pack(out.transpose(0, 1)[None], span, 2)


def _prompt_mask(
    span: Span, layout: PackLayout, visibility: Visibility, device: torch.device
) -> Bool[Tensor, "prompt prompt"] | None:
    """True where a token may look at another; None where it sees all before it."""
    if visibility == CAUSAL:
        return None
    prompt = slice(span.start, span.start + span.prompt)
    return layout.once(
        ("prompt", span, visibility, device), lambda: visible(layout, visibility, prompt).to(device)
    )


def _sdpa(
    query: Float[Tensor, "rows heads queries dim"],
    key: Float[Tensor, "rows kv_heads keys dim"],
    value: Float[Tensor, "rows kv_heads keys value_dim"],
    scale: float | None,
    mask: Bool[Tensor, "*_ queries keys"] | None,
    causal: bool = False,
) -> Float[Tensor, "rows heads queries value_dim"]:
    """SDPA with grouped key/value heads on whichever kernel takes them."""
    grouped = query.shape[1] != key.shape[1]
    if grouped and query.is_cuda and (mask is not None or query.dtype == torch.float32):
        # With a mask, or in fp32, only the slow math kernel takes grouped heads on a GPU.
        times = query.shape[1] // key.shape[1]
        key = key.repeat_interleave(times, 1)
        value = value.repeat_interleave(times, 1)
        grouped = False
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def choose_backend(asked: str, implementation: str, device: torch.device, dtype: torch.dtype) -> str:
    """The name in `BACKENDS` for what a run asks for, or for ``auto``.

    Raises:
        RefusedError: The backend needs a GPU, or 16-bit weights, that are not there.
    """
    half = dtype in (torch.float16, torch.bfloat16)
    if asked == "auto":
        return "varlen" if device.type == "cuda" and half and "flash" in implementation else "two_part"
    need = ""
    if asked in ("flex", "varlen") and device.type != "cuda":
        need = "a GPU"
    elif asked == "varlen" and not half:
        need = f"16-bit weights, not {dtype}"
    if need:
        raise RefusedError(f"attention {asked} needs {need}", where="SWIFT_GRPO_EXT_ATTENTION", fix="auto")
    return asked


BACKENDS: dict[str, Attend] = {"dense": dense, "two_part": two_part, "flex": flex, "varlen": varlen}
