"""F47: transformers 4 slices three-axis positions, which ``generate`` gets from ms-swift, on a wrong axis."""

from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import in_source, patch


@patch(
    "F47",
    "swift.template.base:Template.generate",
    fingerprint="self, model, *args, **kwargs",
    probe=lambda: in_source(
        "transformers.generation.utils:GenerationMixin.prepare_inputs_for_generation",
        "model_input[:, -current_input_length:]",
    ),
    remove_when="ms-swift no longer takes transformers 4",
    after="swift.template",
)
def fix(generate: Callable[..., Any], template: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Let the model compute such positions itself, together with the deltas that later steps need."""
    if getattr(kwargs.get("position_ids"), "ndim", 0) == 3:
        del kwargs["position_ids"]
    return generate(template, model, *args, **kwargs)
