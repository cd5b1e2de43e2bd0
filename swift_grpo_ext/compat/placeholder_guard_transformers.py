"""C3, sampled by transformers: no placeholder or indicator of a medium, whatever the family."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from swift_grpo_ext.compat.patch import patch
from swift_grpo_ext.models.families import forbidden_token_ids

if TYPE_CHECKING:
    from swift.template import Template
    from transformers import GenerationConfig


@patch(
    "C3-transformers",
    "swift.template.base:Template.prepare_generate_kwargs",
    fingerprint="self, generate_kwargs, *, model=",
    probe=lambda: True,
    remove_when="ms-swift forbids placeholder tokens in what transformers generates",
    after="swift.template",
)
def fix(
    prepare: Callable[..., dict[str, GenerationConfig]], template: Template, *args: object, **kwargs: object
) -> object:
    """Add the family's forbidden tokens to what ``generate`` may not sample."""
    prepared = prepare(template, *args, **kwargs)
    if template.processor is not None and (
        forbidden := forbidden_token_ids(template.config, template.tokenizer)
    ):
        config = prepared["generation_config"]
        config.suppress_tokens = sorted({*(config.suppress_tokens or ()), *forbidden})
    return prepared
