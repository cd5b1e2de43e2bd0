"""Plugs `swift_grpo_ext.group.attention` in behind transformers' attention interface.

The entry of the model's own implementation is wrapped once per process: a call whose mask is a `PackLayout`
is ours, every other call goes on to the original. So no modelling code is touched, stock forwards are as
before, and the recomputation of gradient checkpointing finds its way, because the layout travels with the
arguments of the layer.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig

from swift_grpo_ext.group.attention import BACKENDS
from swift_grpo_ext.group.layout import PackLayout

_wrapped: set[str] = set()


def install(implementation: str) -> None:
    """Let packs through transformers' attention implementation of this name (``sdpa``, ...).

    Raises:
        KeyError: Not in transformers' registry; ``eager`` is not, each model has its own.
    """
    if implementation in _wrapped:
        return
    original = AttentionInterface()[implementation]

    def attend_pack_or_rows(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any
    ) -> tuple[Tensor, Any]:
        if not isinstance(attention_mask, PackLayout):
            return original(module, query, key, value, attention_mask, **kwargs)
        _check_plain(kwargs)
        out = BACKENDS[attention_mask.backend](query, key, value, attention_mask, kwargs.get("scaling"))
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register(implementation, attend_pack_or_rows)
    _wrapped.add(implementation)


def _check_plain(kwargs: dict[str, Any]) -> None:
    """Packs attend fully, without dropout, soft caps, sinks or biases; `unsupported` says so beforehand."""
    special = ("sliding_window", "softcap", "s_aux", "position_bias")
    odd = [name for name in special if kwargs.get(name) is not None]
    if odd or kwargs.get("dropout"):
        raise ValueError(f"attention over a pack does not know {', '.join(odd) or 'dropout'}")


def mask_mapping(layout: PackLayout) -> dict[str, PackLayout]:
    """What to pass as ``attention_mask``: transformers takes a prepared mask for each type of layer."""
    return {"full_attention": layout}


def unsupported(text_config: PretrainedConfig) -> str:
    """Why a language model of this config cannot take packs; empty when it can."""
    implementation = text_config._attn_implementation
    if implementation not in AttentionInterface():
        return f"attention implementation {implementation!r} is not in transformers' attention interface"
    if reason := special_layers(text_config):
        return reason
    if getattr(text_config, "attention_dropout", 0.0):
        return f"attention_dropout {text_config.attention_dropout}"
    return ""


def special_layers(text_config: PretrainedConfig) -> str:
    """Layers that do not attend to everything before them (windows, states), in words; empty if none."""
    layer_types = set(getattr(text_config, "layer_types", None) or ["full_attention"]) - {"full_attention"}
    return f"layers of type {', '.join(sorted(layer_types))}" if layer_types else ""
