"""F46: transformers 5.0 to 5.15 unties an output layer that 4 saved tied, and initializes it at random."""

from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import patch
from swift_grpo_ext.hugging_face.checkpoints import tie_as_saved


@patch(
    "F46",
    "swift.model.register:ModelLoader.get_config",
    fingerprint="self, model_dir",
    probe=lambda: True,  # depends only on the transformers releases that the defect names
    remove_when="transformers below 5.16 is no longer supported",
)
def fix(read: Callable[..., Any], loader: Any, model_dir: str) -> Any:
    """Read the config of a checkpoint, with the output layer tied if it was saved tied."""
    config = read(loader, model_dir)
    tie_as_saved(config, model_dir)
    return config
