"""F45: transformers 4 reads what 5 has saved, and fails far from the cause, or draws weights at random."""

from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import patch
from swift_grpo_ext.hugging_face.checkpoints import check_readable


@patch(
    "F45",
    "swift.model.model_meta:_get_model_info",
    fingerprint="model_dir, model_type, quantization_config",
    probe=lambda: True,  # of the release of transformers, which the defect names
    remove_when="ms-swift no longer takes transformers 4",
)
def fix(read: Callable[..., Any], model_dir: str, *args: object, **kwargs: object) -> Any:
    """Read what is to be known of a checkpoint, if the installed transformers can.

    Raises:
        EnvironmentMismatchError: It cannot.
    """
    check_readable(model_dir)
    return read(model_dir, *args, **kwargs)
