"""C1: read a checkpoint's config without running its remote code if transformers has the model class."""

from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import in_source, patch
from swift_grpo_ext.models.families import is_native


@patch(
    "C1",
    "swift.model.model_meta:AutoConfig",
    fingerprint="",
    # ms-swift asks for remote code before it knows the model.
    probe=lambda: in_source("swift.model.model_meta:_get_model_info", "trust_remote_code=True"),
    remove_when="ms-swift lets a loader say that its class is native",
    wraps=True,
)
def fix(auto_config: Any) -> Callable[..., object]:
    """A config class that never trusts remote code for native classes, even if asked to."""

    class NativeAutoConfig(auto_config):
        @classmethod
        def from_pretrained(cls, folder: Any, **kwargs: Any) -> object:
            if is_native(folder):
                kwargs["trust_remote_code"] = False
            return auto_config.from_pretrained(folder, **kwargs)

    return NativeAutoConfig
