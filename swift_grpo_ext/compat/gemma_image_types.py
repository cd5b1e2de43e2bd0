"""F41: Gemma 3's image tokens are marked as text, so the tokens of an image do not attend to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch

if TYPE_CHECKING:
    from swift.template.template_inputs import StdTemplateInputs
    from swift.template.templates.gemma import Gemma3VisionTemplate

TARGET = "swift.template.templates.gemma:Gemma3VisionTemplate._encode"
# From transformers 5.15 on, the processor's image token is the one that begins an image.
_PROCESSOR = "transformers.models.gemma3.processing_gemma3:Gemma3Processor.__init__"


@patch(
    "F41",
    TARGET,
    fingerprint="self, inputs",
    probe=lambda: (
        in_source(_PROCESSOR, "self.image_token_id = tokenizer.boi_token_id")
        and in_source(TARGET, "mm_token_type_ids[array_ids == self.processor.image_token_id] = 1")
    ),
    remove_when="ms-swift's template of Gemma 3 asks the tokenizer which token stands for a part of an image",
)
def fix(
    encode: Callable[..., dict[str, Any]], template: Gemma3VisionTemplate, inputs: StdTemplateInputs
) -> dict[str, Any]:
    """Mark the placeholder tokens that image features replace."""
    encoded = encode(template, inputs)
    of_images = template.processor.tokenizer.image_token_id
    encoded["token_type_ids"] = [int(token == of_images) for token in encoded["input_ids"]]
    return encoded
