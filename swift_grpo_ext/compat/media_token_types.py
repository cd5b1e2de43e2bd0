"""M6: rows of GLM-4.5V carry the token types of their images alone, and mcore-bridge wants all tokens'."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch

if TYPE_CHECKING:
    from swift.template.template_inputs import StdTemplateInputs
    from swift.template.templates.glm import GLM4_5VTemplate

TARGET = "swift.template.templates.glm:GLM4_5VTemplate._encode"


@patch(
    "M6",
    TARGET,
    fingerprint="self, inputs",
    probe=lambda: in_source(TARGET, "for key in ['input_ids', 'token_type_ids', 'attention_mask']:"),
    remove_when="ms-swift's template of GLM-4.5V drops the mm_token_type_ids of its images' own text",
)
def fix(
    encode: Callable[..., dict[str, Any]], template: GLM4_5VTemplate, inputs: StdTemplateInputs
) -> dict[str, Any]:
    """Drop them: positions are made from the token ids, and so is the mask of the images."""
    encoded = encode(template, inputs)
    encoded.pop("mm_token_type_ids", None)
    return encoded
