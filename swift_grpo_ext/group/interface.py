"""Plugs `swift_grpo_ext.group.attention` in behind transformers' attention interface.

The entry of the model's own backend is wrapped once per process: a call whose mask is a `PackMask` is ours.
transformers hands masks of four dimensions on untouched, also to recomputation.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

from swift_grpo_ext.group import recurrent
from swift_grpo_ext.group.attention import BACKENDS
from swift_grpo_ext.group.layout import ImageBlocks, PackForm, PackLayout, PackMask
from swift_grpo_ext.hugging_face.release import MASKS_BY_KIND

_wrapped: set[Callable[..., object]] = set()
_KNOWN_LAYERS = {"full_attention", "sliding_attention", "linear_attention"}
# Options of an attention call that packs do not support.
_SPECIAL = ("softcap", "s_aux", "position_bias")
# Config fields that announce such options, or that a token's output depends on others of the batch.
_UNSUPPORTED_FIELDS = {
    "attention_dropout": "",
    "attn_logit_softcapping": "",
    "router_jitter_noise": ", noise that rows of a group would share",
    "alibi": "",
}


def install(implementation: str) -> None:
    """Let packs through transformers' attention implementation of this name; KeyError for ``eager``."""
    original = AttentionInterface()[implementation]
    if original in _wrapped:
        return

    def attend_pack_or_rows(
        module: nn.Module,
        query: Float[Tensor, "batch heads queries dim"],
        key: Float[Tensor, "batch kv_heads keys dim"],
        value: Float[Tensor, "batch kv_heads keys value_dim"],
        attention_mask: Shaped[Tensor, "..."] | None,
        **kwargs: Any,
    ) -> tuple[Float[Tensor, "batch queries heads value_dim"], Float[Tensor, "..."] | None]:
        if not isinstance(attention_mask, PackMask):
            return original(module, query, key, value, attention_mask, **kwargs)
        return attend(module, query, key, value, attention_mask.pack_layout, kwargs), None

    AttentionInterface.register(implementation, attend_pack_or_rows)
    _wrapped.add(attend_pack_or_rows)


def attend(
    module: nn.Module,
    query: Float[Tensor, "1 heads tokens dim"],
    key: Float[Tensor, "1 kv_heads tokens dim"],
    value: Float[Tensor, "1 kv_heads tokens value_dim"],
    layout: PackLayout,
    options: dict[str, Any],
) -> Float[Tensor, "1 tokens heads value_dim"]:
    """Attention over a pack as a layer calls it.

    Raises:
        ValueError: The layer asks for something that packs do not support, such as dropout or softcapping.
    """
    odd = [name for name in _SPECIAL if options.get(name) is not None]
    if odd or options.get("dropout"):
        raise ValueError(f"attention over a pack does not know {', '.join(odd) or 'dropout'}")
    visibility = layout.visibility(window_of(module, options))
    backend = layout.form.backend
    if backend == "varlen" and (visibility.blocks or query.shape[-1] != value.shape[-1]):
        backend = "sdpa"  # flash kernels support neither images seen as a whole nor MLA's narrow values
    out = BACKENDS[backend](query, key, value, layout, options.get("scaling"), visibility)
    return out.transpose(1, 2).contiguous()


def window_of(module: nn.Module, options: dict[str, Any]) -> int | None:
    """The sliding window of a layer, in tokens, itself included; None if it sees everything before."""
    window = options.get("sliding_window")
    if window is not None:
        return int(window)
    config = getattr(module, "config", None)
    layer = getattr(module, "layer_idx", None)
    kinds = getattr(config, "layer_types", None)
    # Some layers do not pass the window to the function: only their mask would have it.
    if kinds and layer is not None and layer < len(kinds) and kinds[layer] == "sliding_attention":
        return int(config.sliding_window)  # type: ignore[union-attr]
    return None


def pack_mask(layout: PackLayout, device: torch.device | str = "cpu") -> PackMask | dict[str, PackMask]:
    """Value to pass as ``attention_mask``: the mask, or a mapping with it for each type of layer."""
    # Boolean, so that mixed precision does not cast it. Not all true: recurrent layers would get none.
    mask = torch.zeros(1, 1, layout.length, 1, dtype=torch.bool, device=device).as_subclass(PackMask)
    mask.pack_layout = layout
    return dict.fromkeys(layout.form.layer_types, mask) or mask


def pack_form(text_config: PretrainedConfig, backend: str, image_blocks: ImageBlocks = "none") -> PackForm:
    """How a language model of this config takes packs."""
    kinds = tuple(sorted(set(getattr(text_config, "layer_types", None) or [])))
    # On their way to layers with a recurrent state masks of four dimensions are dropped, mappings are not.
    mapped = MASKS_BY_KIND and "linear_attention" in kinds
    return PackForm(backend, kinds if mapped else (), image_blocks)


def unsupported(text_config: PretrainedConfig) -> str:
    """Reason why a language model of this config cannot take packs; empty when it can."""
    implementation = text_config._attn_implementation
    if implementation not in AttentionInterface():
        return f"attention implementation {implementation!r} is not in transformers' attention interface"
    if odd := _special_layers(text_config):
        return odd
    for name, more in _UNSUPPORTED_FIELDS.items():
        if value := getattr(text_config, name, None):
            return f"{name} {value}{more}"
    return ""


def _special_layers(text_config: PretrainedConfig) -> str:
    """Types of layers that we do not know, in words; empty without any."""
    odd = set(getattr(text_config, "layer_types", None) or []) - _KNOWN_LAYERS
    return f"layers of type {', '.join(sorted(odd))}" if odd else ""


def why_no_packs(base: PreTrainedModel) -> str:
    """Reason why a model cannot take packs; empty when it can."""
    config = base.config.get_text_config()
    return _other_code(base) or unsupported(config) or recurrent.unsupported(base.get_decoder())


def why_no_shared_prefill(base: PreTrainedModel) -> str:
    """Reason why the cache of a model's prompt cannot be spread over its completions; empty when it can."""
    return _other_code(base) or _special_layers(base.config.get_text_config())


def take_packs(base: PreTrainedModel, image_blocks: ImageBlocks = "none") -> PackForm:
    """Let packs through a model's layers, once per process, and say how it takes them."""
    config = base.config.get_text_config()
    implementation = config._attn_implementation
    install(implementation)
    recurrent.install(base.get_decoder())
    takes_flash = base.device.type == "cuda" and base.dtype.itemsize == 2 and "flash" in implementation
    return pack_form(config, "varlen" if takes_flash else "sdpa", image_blocks)


def _other_code(base: PreTrainedModel) -> str:
    """Names code that is not transformers' own: nothing is known of its attention."""
    if type(base).__module__.startswith("transformers_modules"):
        return "code of the checkpoint (trust_remote_code)"
    return "an encoder and a decoder" if base.config.is_encoder_decoder else ""
