"""Sizes of published models that travel with the package, so that planning needs no network.

``models.json`` holds for each name the id of the checkpoint, where its sizes were read, its parameters (1e9)
where a model card states them, and the sizes as a config.json has them.
"""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from swift_grpo_ext.errors import SwiftGrpoExtError

_MODELS = Path(__file__).parent / "models.json"


@cache
def published() -> dict[str, dict[str, Any]]:
    """The bundled models by name: ``id``, ``source``, ``billions`` (or None) and ``config``."""
    models: dict[str, dict[str, Any]] = json.loads(_MODELS.read_text(encoding="utf-8"))
    return models


def bundled() -> list[str]:
    """Names of the models whose sizes are bundled."""
    return list(published())


def find_config(model: str) -> dict[str, Any] | None:
    """Configuration of a model by folder or by name, without network."""
    path = Path(model).expanduser() / "config.json"
    if path.is_file():
        return _read(path)
    name = bundled_name(model)
    return copy.deepcopy(published()[name]["config"]) if name else None


def bundled_name(model: str) -> str | None:
    """The bundled model that an id or a path names."""
    last = re.split(r"[/\\]|__", model.rstrip("/"))[-1].lower()
    for name in published():
        if last == name.lower() or last.startswith((name.lower() + "-", name.lower() + "_")):
            return name
    return None


def loadable(model: str) -> str:
    """What the host loads a model by: of a bundled name alone, the id of the published checkpoint."""
    name = bundled_name(model)
    if name is None or model.lower() != name.lower() or Path(model).expanduser().is_dir():
        return model
    return str(published()[name]["id"])


def require_config(model: str) -> dict[str, Any]:
    """As `find_config`."""
    config = find_config(model)
    if config is None:
        raise SwiftGrpoExtError(
            "no config.json for this model",
            where=f"--model {model}",
            fix=f"give a folder with a config.json, or one of {', '.join(published())}",
        )
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        what = f"config.json cannot be read: {error}"
        raise SwiftGrpoExtError(what, where=str(path), fix="download the model again") from None
    if not isinstance(config, dict):
        raise SwiftGrpoExtError("config.json is no object", where=str(path), fix="download the model again")
    return config
