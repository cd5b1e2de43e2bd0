"""F45: transformers 4 misreads checkpoints saved by 5: it fails far from the cause, or randomizes weights."""

from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import patch
from swift_grpo_ext.hugging_face.checkpoints import check_readable


@patch(
    "F45",
    "swift.model.model_meta:_get_model_info",
    fingerprint="model_dir, model_type, quantization_config",
    probe=lambda: True,  # depends only on the transformers releases that the defect names
    remove_when="ms-swift no longer takes transformers 4",
)
def fix(read: Callable[..., Any], model_dir: str, *args: object, **kwargs: object) -> Any:
    """Read a checkpoint's model info, if the installed transformers can load the checkpoint.

    Raises:
        EnvironmentMismatchError: It cannot.
    """
    check_readable(model_dir)
    return read(model_dir, *args, **kwargs)
