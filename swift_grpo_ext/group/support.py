"""Whether and how a model takes packs, and prompts that are computed once."""

from __future__ import annotations

from transformers import PreTrainedModel

from swift_grpo_ext.group import interface, recurrent
from swift_grpo_ext.group.attention import choose_backend
from swift_grpo_ext.group.layout import ImageBlocks, PackForm


def why_no_packs(base: PreTrainedModel) -> str:
    """Why a model cannot take packs; empty when it can."""
    if reason := _other_code(base):
        return reason
    return interface.unsupported(base.config.get_text_config()) or recurrent.unsupported(base.get_decoder())


def why_no_shared_prefill(base: PreTrainedModel) -> str:
    """Why the cache of a model's prompt cannot be spread over its completions; empty when it can."""
    return _other_code(base) or interface.special_layers(base.config.get_text_config())


def take_packs(base: PreTrainedModel, asked: str, image_blocks: ImageBlocks = "none") -> PackForm:
    """Let packs through a model's layers, once per process, and say how it takes them."""
    config = base.config.get_text_config()
    interface.install(config._attn_implementation)
    recurrent.install(base.get_decoder())
    backend = choose_backend(asked, config._attn_implementation, base.device, base.dtype)
    return interface.pack_form(config, backend, image_blocks)


def _other_code(base: PreTrainedModel) -> str:
    """Names code that is not transformers' own: nothing is known of its attention."""
    if type(base).__module__.startswith("transformers_modules"):
        return "code of the checkpoint (trust_remote_code)"
    return "an encoder and a decoder" if base.config.is_encoder_decoder else ""
