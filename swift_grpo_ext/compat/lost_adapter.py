"""F36: adapter weights that the model has no place for are silently skipped, even if that is all of them."""

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
    after="swift.tuners.peft",  # which replaces PEFT's method with its own
)
def fix(
    load: Callable[..., Any], model: PeftModel, model_id: str | PathLike[str], *args: object, **kwargs: object
) -> Any:
    """Load an adapter; warn about weights that the model has no place for.

    Raises:
        RefusedError: None of its weights reaches the model, which would run as if without it.
    """
    from swift.utils import get_logger

    result = load(model, model_id, *args, **kwargs)
    lost = result.unexpected_keys
    if not lost:
        return result
    name = kwargs.get("adapter_name", args[0] if args else "default")
    places = sum(f".{name}." in parameter for parameter in model.state_dict())
    error = RefusedError(
        f"the model has no place for {len(lost)} weights of the adapter, such as {lost[0]}: it answers as if "
        "they had not been trained",
        where=str(model_id),
        fix="load it into the model that it was trained with; if megatron rlhf saved it without this "
        "package, rename model.layers in adapter_model.safetensors to model.language_model.layers",
    )
    if len(result.missing_keys) >= places:
        raise error
    get_logger().warning(f"swift-grpo-ext: {error}")
    return result
