"""Attention over a pack with the variable-length flash kernel of a GPU."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx

from swift_grpo_ext.group.layout import PackLayout, Visibility


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
