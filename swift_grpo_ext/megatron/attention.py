"""Attention over a pack with Megatron: one call of Transformer Engine, or SDPA.

The layout of a pack travels as the parameters of a packed sequence, which Megatron hands to every layer,
also to recomputation. The one call has fewer queries than keys under mask ``padding_causal_bottom_right``.
Which of Transformer Engine's backends take that depends on the GPU and on cuDNN, so it is tried:
https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/api/pytorch.html
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.extensions.transformer_engine import TEDotProductAttention
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor, nn

from swift_grpo_ext.errors import in_a_line
from swift_grpo_ext.group.attention import dense, sdpa
from swift_grpo_ext.group.layout import CAUSAL, PackForm, PackLayout
from swift_grpo_ext.group.tree import Node

ONE_CALL = "one_call"
SDPA = "sdpa"
_TRIED = PackLayout((Node(0, 5), Node(5, 3, 0, 1, 5), Node(8, 4, 0, 1, 5)), PackForm(ONE_CALL))
_CLOSE = 32  # roundings that two ways of summing may be apart


@dataclass
class PackParams(PackedSeqParams):
    """Parameters of a packed sequence that is a pack."""

    layout: PackLayout | None = None
    seq_lens: Tensor | None = None  # ``(rows,)`` of the ordinary batch, whose number ms-swift reads


def pack_params(layout: PackLayout, lengths: Tensor) -> PackParams:
    """Parameters of a pack of rows with these lengths, ``(rows,)``; rotary tables reach to the longest."""
    ends = torch.tensor([0, layout.length], dtype=torch.int32, device=lengths.device)
    longest = int(lengths.max())
    return PackParams(
        qkv_format="thd",
        cu_seqlens_q=ends,
        cu_seqlens_kv=ends,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
        layout=layout,
        seq_lens=lengths,
    )


@functools.cache
def install() -> None:
    """Let packs through Megatron's attention, once per process."""
    stock = TEDotProductAttention.forward

    @functools.wraps(stock)
    def attend_pack_or_rows(
        module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kw: Any
    ) -> Any:
        params = kw.get("packed_seq_params")
        if not isinstance(params, PackParams) or params.layout is None:
            return stock(module, query, key, value, *args, **kw)
        return BACKENDS[params.layout.form.backend](module, query, key, value, params.layout)

    TEDotProductAttention.forward = attend_pack_or_rows


def one_call(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, layout: PackLayout) -> Tensor:
    """A segment of each node, which has the keys of those above it before its own.

    ``(T, heads, dim)`` to ``(T, heads * dim)``.
    """

    taken, bounds_q, bounds_kv, most_q, most_kv = layout.sequences(query.device)
    output: Tensor = super(TEDotProductAttention, module).forward(
        query,
        key[taken],
        value[taken],
        None,
        qkv_format="thd",
        cu_seqlens_q=bounds_q,
        cu_seqlens_kv=bounds_kv,
        max_seqlen_q=most_q,
        max_seqlen_kv=most_kv,
        attn_mask_type="padding_causal_bottom_right",
    )
    return output


def _by(attend: Callable[..., Tensor], module: nn.Module, *args: Any) -> Tensor:
    """The same by ``attend``, a function for tensors ``(1, heads, T, dim)``."""
    *tensors, layout = args
    rows = (tensor.transpose(0, 1)[None] for tensor in tensors)
    out = attend(*rows, layout, getattr(module, "softmax_scale", None), CAUSAL)
    return out[0].transpose(0, 1).flatten(1)


BACKENDS: dict[str, Callable[..., Tensor]] = {ONE_CALL: one_call, SDPA: functools.partial(_by, sdpa)}


def why_not_one_call(models: Sequence[nn.Module], config: Any) -> str:
    """Reason against the one call, which is tried on 12 tokens, in a clause; empty if it is right."""
    parts = (part for model in models for part in model.modules())
    module = next((part for part in parts if isinstance(part, TEDotProductAttention)), None)
    if module is None:
        return ""
    parameter = next(models[0].parameters())
    dtype = config.params_dtype
    ranks = config.tensor_model_parallel_size
    heads = (config.num_attention_heads // ranks, *[max(1, config.num_query_groups // ranks)] * 2)
    numbers = torch.Generator().manual_seed(0)
    made = [torch.randn(_TRIED.length, count, config.kv_channels, generator=numbers) for count in heads]
    inputs = [tensor.to(parameter.device, dtype) for tensor in made]
    limit = _CLOSE * torch.finfo(dtype).eps
    try:
        ours = _with_gradients(one_call, module, inputs)
        expected = _with_gradients(functools.partial(_by, dense), module, inputs)
    except Exception as error:
        return in_a_line(error)
    pairs = zip(ours, expected, strict=True)
    apart = max(float((own - other).abs().max() / other.abs().max()) for own, other in pairs)
    return f"it is {apart:.2g} of the largest value off; {limit:.2g} is rounding" if apart > limit else ""


def _with_gradients(attend: Callable[..., Tensor], module: nn.Module, given: list[Tensor]) -> list[Tensor]:
    """The output, and the gradients of the inputs, in fp32."""
    leaves = [tensor.clone().requires_grad_() for tensor in given]
    with torch.enable_grad():
        out = attend(module, *leaves, _TRIED)
        gradients = torch.autograd.grad(out.square().sum(), leaves)
    return [tensor.detach().float() for tensor in (out, *gradients)]
