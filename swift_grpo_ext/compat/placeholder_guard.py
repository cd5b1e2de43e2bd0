"""C3: never sample media placeholder or indicator tokens: re-encoded, they crash or change a prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import patch
from swift_grpo_ext.models.families import forbidden_token_ids

if TYPE_CHECKING:
    from swift.infer_engine import RequestConfig
    from swift.template import Template
    from transformers import GenerationConfig


@patch(
    "C3",
    "swift.infer_engine.vllm_engine:VllmEngine._prepare_generation_config",
    fingerprint="self, request_config",
    probe=lambda: True,
    remove_when="ms-swift forbids placeholder tokens in its sampling parameters",
)
def in_vllm(prepare: Callable[..., Any], engine: Any, request_config: RequestConfig) -> object:
    """Add the family's forbidden tokens to vLLM's bad words, in colocate mode and in servers."""
    params = prepare(engine, request_config)
    if forbidden := forbidden_token_ids(engine.config, engine.tokenizer):
        tokens = engine.tokenizer.convert_ids_to_tokens(list(forbidden))
        # vLLM gives bad words a logit of -inf; a bias would be clamped to -100.
        params.bad_words = list(dict.fromkeys([*(params.bad_words or ()), *tokens]))
    return params


@patch(
    "C3-transformers",
    "swift.template.base:Template.prepare_generate_kwargs",
    fingerprint="self, generate_kwargs, *, model=",
    probe=lambda: True,
    remove_when="ms-swift forbids placeholder tokens in what transformers generates",
    after="swift.template",
)
def in_transformers(
    prepare: Callable[..., dict[str, GenerationConfig]], template: Template, *args: object, **kwargs: object
) -> object:
    """Add the family's forbidden tokens to those that ``generate`` suppresses."""
    prepared = prepare(template, *args, **kwargs)
    if template.processor is not None and (
        forbidden := forbidden_token_ids(template.config, template.tokenizer)
    ):
        config = prepared["generation_config"]
        config.suppress_tokens = sorted({*(config.suppress_tokens or ()), *forbidden})
    return prepared
