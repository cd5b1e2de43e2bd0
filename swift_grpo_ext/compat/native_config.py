"""C1: the config of a checkpoint of a native class is read without running code that comes with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swift_grpo_ext.compat.patch import Patch
from swift_grpo_ext.models.families import FAMILIES

TARGET = "swift.model.model_meta:AutoConfig"


def probe() -> bool:
    """True if the host asks for remote code before it knows the model."""
    import inspect

    from swift.model import model_meta

    return "trust_remote_code=True" in inspect.getsource(model_meta._get_model_info)


def is_native(folder: str | Path) -> bool:
    """True if config.json names an architecture that transformers has itself and this package describes."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    named = config.get("architectures") if isinstance(config, dict) else None
    return bool(set(named or ()) & {facts.architecture for facts in FAMILIES.values()})


def fix(auto_config: Any) -> Callable[..., Any]:
    """A config class that trusts no code for native classes, whatever it is asked for."""

    class NativeAutoConfig(auto_config):
        @classmethod
        def from_pretrained(cls, folder: Any, **kwargs: Any) -> Any:
            if is_native(folder):
                kwargs["trust_remote_code"] = False
            return auto_config.from_pretrained(folder, **kwargs)

    return NativeAutoConfig


PATCH = Patch(
    id="C1-native-config",
    breaks="any checkpoint is read with trust_remote_code, also one whose class transformers has itself",
    target=TARGET,
    fingerprint="",
    affected={"ms-swift": ">=4.5,<4.7"},
    probe=probe,
    fix=fix,
    upstream="https://github.com/modelscope/ms-swift/blob/main/swift/model/model_meta.py",
    remove_when="the host lets a loader say that its class is native",
    after="swift.model.model_meta",
)
