"""F36: weights of an adapter that the model has no place for are passed over, all of them if need be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch
from swift_grpo_ext.errors import RefusedError

if TYPE_CHECKING:
    from os import PathLike

    from peft import PeftModel


@patch(
    "F36",
    "peft.peft_model:PeftModel.load_adapter",
    fingerprint="self, model_id, *args, **kwargs",
    probe=lambda: in_source("swift.tuners.peft:load_adapter", "warning_once(f'Unexpected LoRA keys"),
    remove_when="ms-swift or PEFT refuses an adapter of which a weight reached nothing",
    after="swift.tuners.peft",  # which puts its own in the place of PEFT's
)
def fix(
    load: Callable[..., Any], model: PeftModel, model_id: str | PathLike[str], *args: object, **kwargs: object
) -> Any:
    """Load an adapter, all of it.

    Raises:
        RefusedError: The model has no parameter for a weight of the adapter.
    """
    result = load(model, model_id, *args, **kwargs)
    lost = result.unexpected_keys
    if lost:
        raise RefusedError(
            f"the model has no place for {len(lost)} weights of the adapter, such as {lost[0]}, "
            "and would answer as if they had not been trained",
            where=str(model_id),
            fix="load it into the model that it was trained with; if megatron rlhf saved it without this "
            "package, rename model.layers in adapter_model.safetensors to model.language_model.layers",
        )
    return result
