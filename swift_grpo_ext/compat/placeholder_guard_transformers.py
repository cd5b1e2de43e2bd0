"""C3, sampled by transformers: no placeholder or indicator of a medium, whatever the family."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from swift_grpo_ext.compat.patch import Patch
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.models.families import forbidden_token_ids

if TYPE_CHECKING:
    from swift.template import Template
    from transformers import GenerationConfig, PreTrainedModel


def fix(prepare: Callable[..., dict[str, GenerationConfig]]) -> Callable[..., object]:
    """Add the family's forbidden tokens to what ``generate`` may not sample."""

    @functools.wraps(prepare)
    def prepare_generate_kwargs(
        template: Template, generate_kwargs: dict[str, object], *, model: PreTrainedModel = None
    ) -> object:
        prepared = prepare(template, generate_kwargs, model=model)
        forbidden = (
            forbidden_token_ids(template.config, template.tokenizer) if template.processor is not None else ()
        )
        if forbidden:
            config = prepared["generation_config"]
            config.suppress_tokens = sorted({*(config.suppress_tokens or ()), *forbidden})
        return prepared

    return prepare_generate_kwargs


PATCH = Patch(
    defect=DEFECTS["C3-transformers"],
    target="swift.template.base:Template.prepare_generate_kwargs",
    fingerprint="self, generate_kwargs, |, model=",
    probe=lambda: True,
    fix=fix,
    remove_when="ms-swift forbids placeholder tokens in what transformers generates",
    after="swift.template",
)
