"""Attention over a pack: every completion sees its prompt and its own past, and nothing else.

All functions of `BACKENDS` compute the same thing from ``(1, heads, T, dim)`` tensors, in layers that see
everything before, with a sliding window, and where the tokens of an image see each other (`Reach`):

    dense     SDPA with a (T, T) mask: the reference
    two_part  SDPA, prompts first, then the completions as a batch over prompt and own keys; no (T, T) mask
    flex      FlexAttention with a block mask made from the spans; for GPUs
    varlen    one call of a variable-length flash kernel; for GPUs
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.group.attention_gpu import flex, varlen
from swift_grpo_ext.group.layout import (
    EVERYTHING_BEFORE,
    PackLayout,
    Reach,
    Span,
    completions_mask,
    prompt_mask,
    visible,
)

Attend = Callable[..., Tensor]  # (query, key, value, layout, scale, reach), as below


def dense(
    query: Tensor, key: Tensor, value: Tensor, layout: PackLayout, scale: float | None, reach: Reach
) -> Tensor:
    """SDPA with the whole ``(T, T)`` mask."""
    mask = layout.once(("dense", reach, query.device), lambda: visible(layout, reach).to(query.device))
    return _sdpa(query, key, value, scale, mask)


def two_part(
    query: Tensor, key: Tensor, value: Tensor, layout: PackLayout, scale: float | None, reach: Reach
) -> Tensor:
    """SDPA of each prompt, then of its completions as a batch, over the keys of prompt and completion.

    Memory: a mask of ``(completion, prompt + completion)`` where the kernel wants one, one of ``(prompt,
    prompt)`` for windows and blocks, and a copy of the prompt's keys and values for each completion.
    """
    sizes = [size for span in layout.spans for size in (span.prompt, sum(span.completions))]
    parts = list(zip(*(tensor.split(sizes, 2) for tensor in (query, key, value)), strict=True))
    done: list[Tensor] = []
    for span, (q, k, v), completions in zip(layout.spans, parts[::2], parts[1::2], strict=True):
        causal = reach == EVERYTHING_BEFORE
        mask = None if causal else prompt_mask(layout, span, reach, query.device)
        done.append(_sdpa(q, k, v, scale, mask, causal))
        if sum(span.completions):
            done.append(_attend_completions(completions, k, v, span, layout, scale, reach))
    return torch.cat(done, 2)


def _attend_completions(
    completions: tuple[Tensor, ...],
    key: Tensor,
    value: Tensor,
    span: Span,
    layout: PackLayout,
    scale: float | None,
    reach: Reach,
) -> Tensor:
    """Attention of one group's completions: ``(1, heads, sum of completions, dim)``."""
    lengths, device = span.completions, key.device
    rows, width = len(lengths), max(lengths)
    ragged = min(lengths) != width
    index = layout.once((lengths, device), lambda: _ragged_index(lengths, device)) if ragged else None
    own_query, own_key, own_value = (_to_rows(part, rows, width, index) for part in completions)
    if reach.window is not None:  # no completion sees more of its prompt
        seen = min(span.prompt, reach.window - 1)
        key, value = (part[:, :, span.prompt - seen :] for part in (key, value))
    keys = torch.cat([key.expand(rows, -1, -1, -1), own_key], 2)
    values = torch.cat([value.expand(rows, -1, -1, -1), own_value], 2)
    if reach == EVERYTHING_BEFORE:
        out = _sdpa_lower_right(own_query, keys, values, layout, scale)
    else:
        mask = completions_mask(layout, span, reach, own_query.device)
        out = _sdpa(own_query, keys, values, scale, mask)
    flat = out.transpose(0, 1).flatten(1, 2)[None]
    return flat if index is None else flat.index_select(2, index[1])


def _ragged_index(completions: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Index from packed to padded completions, and back. Padding repeats some token; nobody looks at it."""
    lengths, width = torch.tensor(completions), max(completions)
    starts = lengths.cumsum(0) - lengths
    columns = torch.arange(width)
    padded = (starts[:, None] + columns).clamp(max=sum(completions) - 1)
    real = (columns < lengths[:, None]).flatten().nonzero()[:, 0]
    return padded.flatten().to(device), real.to(device)


def _to_rows(packed: Tensor, rows: int, width: int, index: tuple[Tensor, Tensor] | None) -> Tensor:
    """``(1, heads, sum of completions, dim)`` to ``(rows, heads, width, dim)``."""
    padded = packed if index is None else packed.index_select(2, index[0])
    return padded[0].unflatten(1, (rows, width)).transpose(0, 1)


def _sdpa(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, mask: Tensor | None, causal: bool = False
) -> Tensor:
    """SDPA with grouped key/value heads on whichever kernel takes them."""
    grouped = query.shape[1] != key.shape[1]
    if grouped and query.is_cuda and (mask is not None or query.dtype == torch.float32):
        # With a mask, or in fp32, only the slow math kernel takes grouped heads on a GPU.
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
        grouped = False
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def _sdpa_lower_right(
    query: Tensor, key: Tensor, value: Tensor, layout: PackLayout, scale: float | None
) -> Tensor:
    """Causal SDPA whose last query sees the last key, as of a sequence whose beginning has been computed."""
    queries, keys = query.shape[2], key.shape[2]
    if query.is_cuda and query.dtype != torch.float32:
        from torch.nn.attention.bias import causal_lower_right

        bias = causal_lower_right(queries, keys)  # reaches the flash kernel without a mask in memory
        grouped = query.shape[1] != key.shape[1]
        return scaled_dot_product_attention(query, key, value, bias, scale=scale, enable_gqa=grouped)
    mask = layout.once(
        ("lower right", queries, keys, query.device),
        lambda: torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries),
    )
    return _sdpa(query, key, value, scale, mask)


def choose_backend(asked: str, implementation: str, device: torch.device, dtype: torch.dtype) -> str:
    """The name in `BACKENDS` for what a run asks for, or ``auto``; RefusedError where that cannot run."""
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
