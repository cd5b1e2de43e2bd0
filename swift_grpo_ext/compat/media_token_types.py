"""M6: GLM-4.5V rows carry token types for their images only, but mcore-bridge needs them for all tokens."""

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
    """Drop the token types: positions and the image mask are computed from the token ids."""
    encoded = encode(template, inputs)
    encoded.pop("mm_token_type_ids", None)
    return encoded
