"""Layers of Megatron's models over a pack: attention and gated delta nets, and which others there are."""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mcore_bridge.model.modules.gated_delta_net import GatedDeltaNet
from megatron.core.extensions.transformer_engine import TEDotProductAttention
from megatron.core.transformer.transformer_block import TransformerBlock
from torch import Tensor, nn

from swift_grpo_ext.group import recurrent
from swift_grpo_ext.group.layout import PackLayout
from swift_grpo_ext.megatron import attention
from swift_grpo_ext.megatron.attention import PackParams

CONVOLUTION = "causal_conv1d"
DELTA_RULE = "chunk_gated_delta_rule"
_MODULE = sys.modules[GatedDeltaNet.__module__]
_wrapped: set[object] = set()


def why_no_packs(models: Sequence[nn.Module]) -> str:
    """Kind of layer that cannot take packs, in a clause; empty if all can."""
    for mixer in _mixers(models):
        if isinstance(mixer, GatedDeltaNet):
            if mixer.config.deterministic_mode:
                return "deterministic recurrent layers take no rows end to end; --deterministic_mode false"
            if getattr(_MODULE, DELTA_RULE) is None:
                return "recurrent layers need flash-linear-attention for rows end to end; install it"
        elif not isinstance(getattr(mixer, "core_attention", None), TEDotProductAttention):
            return f"layers of {type(mixer).__name__}"
    return ""


def install(models: Sequence[nn.Module]) -> None:
    """Let packs through the layers of models, once per process."""
    attention.install()
    for mixer in _mixers(models):
        if isinstance(mixer, GatedDeltaNet) and GatedDeltaNet not in _wrapped:
            _wrapped.add(GatedDeltaNet)
            GatedDeltaNet.forward = _opening_the_layout(GatedDeltaNet.forward)


def _mixers(models: Sequence[nn.Module]) -> Iterator[nn.Module]:
    """Modules that mix tokens in each layer of the language models, but for the vision tower."""
    for model in models:
        for block in model.modules():
            if isinstance(block, TransformerBlock):
                yield from (layer.self_attention for layer in block.layers)


def _opening_the_layout(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def packed_or_rows(layer: GatedDeltaNet, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        params = kwargs.get("packed_seq_params")
        if not isinstance(params, PackParams) or params.layout is None:
            return forward(layer, hidden_states, *args, **kwargs)
        packed: dict[str, Callable[..., object]] = {CONVOLUTION: convolve, DELTA_RULE: recurrent.delta_rule}
        with recurrent.going_over(params.layout, _MODULE, packed):
            return forward(layer, hidden_states, *args, **kwargs)

    return packed_or_rows


def convolve(
    usual: Callable[..., tuple[Tensor, object]],
    layout: PackLayout,
    x: Tensor,
    weight: Tensor,
    cu_seqlens: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The causal convolution of a pack, ``(1, T, channels)``; ``weight`` is ``(channels, kernel)``."""

    def columns(whole: Tensor, weight: Tensor) -> Tensor:
        return usual(x=whole.transpose(1, 2).contiguous(), weight=weight, **options)[0].transpose(1, 2)

    output = recurrent.convolve(columns, layout, x.transpose(1, 2), weight)
    return output.transpose(1, 2), None
