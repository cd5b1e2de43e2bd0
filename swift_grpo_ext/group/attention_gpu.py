"""Attention over a pack with kernels for GPUs; both run without one, too, slowly, so that tests can."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Int32
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn.functional import pad

from swift_grpo_ext.group.layout import MaskFunction, PackLayout, Visibility

BLOCK = 128  # side of FlexAttention's blocks, tokens


def flex(
    query: Float[Tensor, "1 heads tokens dim"],
    key: Float[Tensor, "1 kv_heads tokens dim"],
    value: Float[Tensor, "1 kv_heads tokens value_dim"],
    layout: PackLayout,
    scale: float | None,
    visibility: Visibility,
) -> Float[Tensor, "1 heads tokens value_dim"]:
    """FlexAttention, compiled once per process for any length."""
    device = query.device
    grouped = query.shape[1] != key.shape[1]
    mask = layout.once(("flex", visibility, device), lambda: _block_mask(layout, device, visibility))
    attend = _flex_attention(query.is_cuda)
    return attend(query, key, value, block_mask=mask, scale=scale, enable_gqa=grouped)


@cache
def _flex_attention(compiled: bool) -> Callable[..., Float[Tensor, "..."]]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True) if compiled else flex_attention


def _block_mask(layout: PackLayout, device: torch.device, visibility: Visibility) -> object:
    """FlexAttention's ``BlockMask`` of a layout, made without a ``(T, T)`` mask."""
    from torch.nn.attention.flex_attention import BlockMask

    seen = layout.mask_function(visibility, device)
    some, full = block_grid(seen, torch.arange(layout.length, device=device))
    return BlockMask.from_kv_blocks(
        *_block_lists(some & ~full),
        *_block_lists(full),
        BLOCK_SIZE=BLOCK,
        mask_mod=seen,
        seq_lengths=(layout.length, layout.length),
    )


def block_grid(
    seen: MaskFunction, places: Int[Tensor, " tokens"]
) -> tuple[Bool[Tensor, "blocks blocks"], Bool[Tensor, "blocks blocks"]]:
    """Which blocks hold a visible pair, and which hold nothing else."""
    behind = -len(places) % BLOCK
    some = []
    full = []
    for queries in places.split(BLOCK):  # a row of blocks at a time
        row = pad(seen(0, 0, queries[:, None], places), (0, behind)).unflatten(1, (-1, BLOCK))
        some.append(row.any(2).any(0))
        full.append(row.all(2).sum(0) == BLOCK)
    return torch.stack(some), torch.stack(full)


def _block_lists(
    grid: Bool[Tensor, "blocks blocks"],
) -> tuple[Int32[Tensor, "1 1 blocks"], Int32[Tensor, "1 1 blocks blocks"]]:
    """Counts and indices of the marked blocks in each row."""
    counts = grid.sum(1, dtype=torch.int32)
    indices = grid.int().argsort(dim=1, descending=True, stable=True).int()
    return counts[None, None], indices[None, None]


def varlen(
    query: Float[Tensor, "1 heads tokens dim"],
    key: Float[Tensor, "1 kv_heads tokens dim"],
    value: Float[Tensor, "1 kv_heads tokens value_dim"],
    layout: PackLayout,
    scale: float | None,
    visibility: Visibility,
) -> Float[Tensor, "1 heads tokens value_dim"]:
    """One variable-length call, with causal masks and windows: a sequence for each node."""
    index, *sequences = layout.sequences(query.device)
    queries = query[0].transpose(0, 1).contiguous()
    keys, values = (RepeatRows.apply(part[0].transpose(0, 1), index) for part in (key, value))
    out = varlen_kernel()(queries, keys, values, *sequences, scale, visibility.window)
    return out.transpose(0, 1)[None]


class RepeatRows(torch.autograd.Function):
    """``tensor[index]`` whose gradient is summed in fp32: every node uses the keys of those above it."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, tensor: Float[Tensor, " rows *rest"], index: Int[Tensor, " uses"]
    ) -> Float[Tensor, " uses *rest"]:
        """The rows that ``index`` names."""
        ctx.save_for_backward(index)
        ctx.rows = tensor.shape[0]
        ctx.dtype = tensor.dtype
        return tensor.index_select(0, index)

    @staticmethod
    def backward(
        ctx: FunctionCtx, grad: Float[Tensor, " uses *rest"]
    ) -> tuple[Float[Tensor, " rows *rest"], None]:
        """Sum over the uses of each row."""
        (index,) = ctx.saved_tensors
        total = grad.new_zeros((ctx.rows, *grad.shape[1:]), dtype=torch.float32)
        return total.index_add_(0, index, grad.float()).to(ctx.dtype), None


@cache
def varlen_kernel() -> Callable[..., Float[Tensor, "..."]]:
    """The installed flash-attn's kernel, else the one inside torch. Causal, aligned to the last key."""
    if find_spec("flash_attn"):
        from flash_attn import flash_attn_varlen_func

        def installed(*given: Any) -> Float[Tensor, "tokens heads value_dim"]:
            *tensors, scale, window = given
            sizes = (-1, -1) if window is None else (window - 1, 0)
            return flash_attn_varlen_func(*tensors, softmax_scale=scale, causal=True, window_size=sizes)

        return installed

    def built_in(*given: Any) -> Float[Tensor, "tokens heads value_dim"]:
        *tensors, scale, window = given
        sizes = {} if window is None else {"window_size_left": window - 1, "window_size_right": 0}
        forward = torch.ops.aten._flash_attention_forward
        return forward(*tensors, 0.0, True, False, scale=scale, **sizes)[0]

    return built_in
