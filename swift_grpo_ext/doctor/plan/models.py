"""Model configurations by folder, by name of a published size, or by type, and the sizes they imply."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from swift_grpo_ext.doctor.plan.setting import ModelShape
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.errors import SwiftGrpoExtError, nearest
from swift_grpo_ext.folders import kept, read_json, user_cache
from swift_grpo_ext.versions import installed_version

CONFIG = "config.json"
_PUBLISHED = Path(__file__).with_name("published.json")


def published() -> dict[str, dict[str, Any]]:
    """Models that most GRPO runs start from, by name, each with its hub ``id`` and its ``config``."""
    models: dict[str, dict[str, Any]] = json.loads(_PUBLISHED.read_text(encoding="utf-8"))
    return models


def find_config(model: str) -> dict[str, Any] | None:
    """Configuration of a model by its folder or its config.json, or by name; None for an unknown one.

    Raises:
        SwiftGrpoExtError: A config.json exists but cannot be read.
    """
    path = Path(model).expanduser()
    path = path if path.name == CONFIG else path / CONFIG
    if not os.path.isfile(path):  # unlike Path.is_file, False for a word that is too long for a name
        name = published_name(model)
        return published()[name]["config"] if name else None
    config = read_json(path)
    if not isinstance(config, dict):
        raise SwiftGrpoExtError(
            "config.json cannot be read as a JSON object", where=str(path), fix="download the model again"
        )
    return config


def require_config(model: str) -> dict[str, Any]:
    """As `find_config`; also by a ``model_type`` of transformers, in the sizes of its class.

    Raises:
        SwiftGrpoExtError: The name is unknown; the message suggests the nearest one.
    """
    config = find_config(model)
    if config is not None:
        return config
    from transformers import CONFIG_MAPPING

    if model in CONFIG_MAPPING:
        return {"model_type": model}
    names = {name.lower(): name for name in (*CONFIG_MAPPING, *published())}
    guess = nearest(model.rstrip("/").rpartition("/")[2].lower(), names, 0.75)
    raise SwiftGrpoExtError(
        f"no config.json and no size of this name{f', did you mean {names[guess]}?' if guess else ''}",
        where=f"--model {model}",
        fix=f"modelscope download {model} config.json --local_dir model, then --model model",
    )


def loadable(model: str) -> str:
    """The model argument for ms-swift; for the bare name of a published size, the id of its checkpoint."""
    path = Path(model)
    if path.name == CONFIG:
        return str(path.parent)
    name = None if "/" in model or path.is_dir() else published_name(model)
    return published()[name]["id"] if name else model


def shape_by_config(config: Mapping[str, object]) -> ModelShape:
    """As `shape_of`, which takes seconds: results are kept in the user's cache folder.

    ``$XDG_CACHE_HOME/swift-grpo-ext``, or ``~/.cache/swift-grpo-ext``, one file for each configuration and
    release of transformers.

    Raises:
        SwiftGrpoExtError: No model can be built from the configuration.
    """
    parts = [str(installed_version("transformers")), *ModelShape.__annotations__, config]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
    path = user_cache() / f"shape-{key}.json"
    with suppress(ValidationError):  # missing or incomplete: it is measured again
        return TypeAdapter(ModelShape).validate_python(read_json(path))
    shape = shape_of(config)
    kept(path, asdict(shape))
    return shape


def published_name(model: str) -> str | None:
    """The published size that an id, or a folder such as ``Qwen__Qwen2.5-VL-72B-Instruct``, names."""
    last = re.split("/|__", model.rstrip("/"))[-1].lower()
    return next((name for name in published() if f"{last}-".startswith(f"{name.lower()}-")), None)
