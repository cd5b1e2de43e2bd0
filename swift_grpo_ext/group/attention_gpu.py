"""Attention over a pack with kernels that exist for GPUs: FlexAttention and variable-length flash attention.

Both also run without a GPU, slowly, so that their masks and indices can be tested anywhere: FlexAttention
without compilation, the variable-length call with a reference kernel in place of `varlen_kernel`'s.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from swift_grpo_ext.group.layout import EVERYTHING_BEFORE, PackLayout, Reach

BLOCK = 128  # side of FlexAttention's blocks, tokens


def flex(
    query: Tensor, key: Tensor, value: Tensor, layout: PackLayout, scale: float | None, reach: Reach
) -> Tensor:
    """FlexAttention, compiled once per process for any length."""
    device, grouped = query.device, query.shape[1] != key.shape[1]
    mask = layout.once(("flex", reach, device), lambda: _block_mask(layout, device, reach))
    attend = _flex_attention(query.is_cuda)
    return attend(query, key, value, block_mask=mask, scale=scale, enable_gqa=grouped)


@lru_cache(maxsize=2)
def _flex_attention(compiled: bool) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True) if compiled else flex_attention


def _block_mask(layout: PackLayout, device: torch.device, reach: Reach) -> object:
    """FlexAttention's ``BlockMask`` of a layout, made from the spans without a ``(T, T)`` mask."""
    from torch.nn.attention.flex_attention import BlockMask

    group, branch = (tensor.to(device) for tensor in layout.branches())
    place, number = layout.positions().to(device), layout.block_numbers().to(device)

    def mask_mod(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        same_branch = (branch[k] == 0) | (branch[k] == branch[q])
        before = q >= k
        if reach.blocks:
            before = before | ((number[q] == number[k]) & (number[k] >= 0))
        if reach.window is not None:
            before = before & (place[q] - place[k] < reach.window)
        return before & (group[q] == group[k]) & same_branch

    some, full = block_grid(layout)
    if reach != EVERYTHING_BEFORE:  # every block that might hold a visible pair is looked at in full
        full = torch.zeros_like(full)
        for start, stop in layout.blocks if reach.blocks else ():
            run = slice(start // BLOCK, (stop - 1) // BLOCK + 1)
            some[run, run] = True
    return BlockMask.from_kv_blocks(
        *_block_lists(some & ~full, device),
        *_block_lists(full, device),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod,
        seq_lengths=(layout.length, layout.length),
    )


def block_grid(layout: PackLayout) -> tuple[Tensor, Tensor]:
    """Which blocks hold a visible pair, and which hold nothing else: two ``(blocks, blocks)`` masks."""
    blocks = -(-layout.length // BLOCK)
    some, full = (torch.zeros(blocks, blocks, dtype=torch.bool) for _ in range(2))
    for span in layout.spans:
        prompt_end = span.start + span.prompt
        _mark(some, full, (span.start, span.stop), (span.start, prompt_end))
        at = prompt_end
        for tail in span.completions:
            _mark(some, full, (at, at + tail), (at, at + tail))
            at += tail
    return some, full


def _mark(some: Tensor, full: Tensor, queries: tuple[int, int], keys: tuple[int, int]) -> None:
    """Mark the blocks of a causal rectangle of columns ``[start, stop)`` of queries and of keys."""
    if queries[0] == queries[1] or keys[0] == keys[1]:
        return
    first, last = queries[0] // BLOCK, (queries[1] - 1) // BLOCK
    for row in range(first, last + 1):
        some[row, keys[0] // BLOCK : min((keys[1] - 1) // BLOCK, row) + 1] = True
        inside = queries[0] <= row * BLOCK and (row + 1) * BLOCK <= queries[1]
        if inside:  # whole blocks of keys that end before the block of queries begins
            full[row, -(-keys[0] // BLOCK) : min(keys[1] // BLOCK, row)] = True


def _block_lists(grid: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """``(1, 1, blocks)`` counts and ``(1, 1, blocks, blocks)`` indices of the marked blocks in each row."""
    counts = grid.sum(1, dtype=torch.int32)
    indices = grid.int().argsort(dim=1, descending=True, stable=True).int()
    return counts[None, None].to(device), indices[None, None].to(device)


def varlen(
    query: Tensor, key: Tensor, value: Tensor, layout: PackLayout, scale: float | None, reach: Reach
) -> Tensor:
    """One variable-length call: a sequence for each prompt, and one for each completion behind its prompt.

    Not for images whose tokens see each other: the kernels know none but causal masks and windows.
    """
    index, *sequences = layout.once(("varlen", query.device), lambda: _sequences(layout, query.device))
    queries = query[0].transpose(0, 1).contiguous()
    keys, values = (RepeatRows.apply(part[0].transpose(0, 1), index) for part in (key, value))
    out = varlen_kernel()(queries, keys, values, *sequences, scale, reach.window)
    return out.transpose(0, 1)[None]


def _sequences(layout: PackLayout, device: torch.device) -> tuple[Tensor, Tensor, Tensor, int, int]:
    """Key rows in the order of the sequences, cumulative lengths of queries and of keys, longest of each."""
    rows, queries, keys = [], [], []
    for span in layout.spans:
        at = span.start + span.prompt
        prompt = torch.arange(span.start, at)
        rows.append(prompt)
        queries.append(span.prompt)
        keys.append(span.prompt)
        for tail in filter(None, span.completions):
            rows += [prompt, torch.arange(at, at + tail)]
            queries.append(tail)
            keys.append(span.prompt + tail)
            at += tail
    starts = [torch.tensor([0, *sizes]).cumsum(0).int().to(device) for sizes in (queries, keys)]
    return torch.cat(rows).to(device), starts[0], starts[1], max(queries), max(keys)


class RepeatRows(torch.autograd.Function):
    """``tensor[index]`` whose gradient is summed in fp32: every completion uses the keys of its prompt."""

    @staticmethod
    def forward(ctx: FunctionCtx, tensor: Tensor, index: Tensor) -> Tensor:
        """``(rows, ...)`` to ``(len(index), ...)``."""
        ctx.save_for_backward(index)
        ctx.rows, ctx.dtype = tensor.shape[0], tensor.dtype
        return tensor.index_select(0, index)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        """Sum over the uses of each row."""
        (index,) = ctx.saved_tensors
        total = grad.new_zeros((ctx.rows, *grad.shape[1:]), dtype=torch.float32)
        return total.index_add_(0, index, grad.float()).to(ctx.dtype), None


@lru_cache(maxsize=1)
def varlen_kernel() -> Callable[..., Tensor]:
    """The installed flash-attn's kernel, else the one inside torch. Causal, aligned to the last key.

    Of ``(tokens, heads, dim)``, cumulative lengths and longest sequences of queries and keys, scale and
    window.
    """
    if find_spec("flash_attn"):
        from flash_attn import flash_attn_varlen_func

        def installed(*given: Tensor) -> Tensor:
            *tensors, scale, window = given
            sizes = (-1, -1) if window is None else (window - 1, 0)
            return flash_attn_varlen_func(*tensors, softmax_scale=scale, causal=True, window_size=sizes)

        return installed

    def built_in(*given: Tensor) -> Tensor:
        *tensors, scale, window = given
        sizes = {} if window is None else {"window_size_left": window - 1, "window_size_right": 0}
        forward = torch.ops.aten._flash_attention_forward
        return forward(*tensors, 0.0, True, False, scale=scale, **sizes)[0]

    return built_in
