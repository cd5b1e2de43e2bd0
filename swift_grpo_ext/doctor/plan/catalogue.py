"""Sizes of published models that travel with the package, so that planning needs no network.

``models.json`` has them as a config.json does, with the checkpoint's id, its source and the parameters (1e9)
of its model card.
"""

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from swift_grpo_ext.doctor.plan.setting import ModelShape
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.folders import cached, kept, user_cache
from swift_grpo_ext.versions import installed_version

_MODELS = Path(__file__).parent / "models.json"


@cache
def published() -> dict[str, dict[str, Any]]:
    """The bundled models by name: ``id``, ``source``, ``billions`` (or None) and ``config``."""
    models: dict[str, dict[str, Any]] = json.loads(_MODELS.read_text(encoding="utf-8"))
    return models


def find_config(model: str) -> dict[str, Any] | None:
    """Configuration of a model by folder or by name, without network; None for one that is not at hand.

    Raises:
        SwiftGrpoExtError: The folder's config.json cannot be read.
    """
    path = Path(model).expanduser() / "config.json"
    if path.is_file():
        return _read(path)
    name = bundled_name(model)
    return copy.deepcopy(published()[name]["config"]) if name else None


def bundled_name(model: str) -> str | None:
    """The bundled model that an id or a path names."""
    last = re.split(r"[/\\]|__", model.rstrip("/"))[-1].lower().replace("_", "-")
    names = {name.lower().replace("_", "-"): name for name in published()}
    return next((name for low, name in names.items() if f"{last}-".startswith(f"{low}-")), None)


def loadable(model: str) -> str:
    """What the host loads a model by: of a bundled name alone, the id of the published checkpoint."""
    name = bundled_name(model)
    if name is None or model.lower() != name.lower() or Path(model).expanduser().is_dir():
        return model
    return str(published()[name]["id"])


def require_config(model: str) -> dict[str, Any]:
    """As `find_config`.

    Raises:
        SwiftGrpoExtError: No such folder, and no bundled model of that name.
    """
    config = find_config(model)
    if config is not None:
        return config
    fix = f"give a folder with a config.json, or one of {', '.join(published())}"
    raise SwiftGrpoExtError("no config.json for this model", where=f"--model {model}", fix=fix)


def _read(path: Path) -> dict[str, Any]:
    try:
        return {**json.loads(path.read_text(encoding="utf-8"))}
    except (ValueError, TypeError) as error:  # no JSON, or no object
        what = f"config.json cannot be read: {error}"
        fix = "download the model again"
        raise SwiftGrpoExtError(what, where=str(path), fix=fix) from None


_FORM = 2  # of what is measured; shapes of another form are measured again


def shape_by_config(config: Mapping[str, object]) -> ModelShape:
    """As `shape_of`, which takes seconds: what it measured is kept in the user's cache folder.

    ``$XDG_CACHE_HOME/swift-grpo-ext``, or ``~/.cache/swift-grpo-ext``, one file for each configuration and
    release of transformers.

    Raises:
        SwiftGrpoExtError: No model can be built from the configuration.
    """
    parts = [str(installed_version("transformers")), _FORM, config]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
    path = user_cache() / f"shape-{key}.json"
    with suppress(ValidationError):  # not there, or not whole: it is measured again
        return TypeAdapter(ModelShape).validate_python(cached(path))
    shape = shape_of(config)
    kept(path, asdict(shape))
    return shape
