"""Sizes of published models that travel with the package, so that planning needs no network.

``models.json`` has them as a config.json does, with the checkpoint's id, its source and the parameters (1e9)
of its model card. Measuring one takes seconds, so shapes are stored (``python -m
swift_grpo_ext.doctor.plan.catalogue`` writes them), and those of other models in the user's cache.
"""

import copy
import gzip
import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from swift_grpo_ext.doctor.plan.setting import ModelShape
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.folders import write_whole
from swift_grpo_ext.versions import installed_version

_MODELS = Path(__file__).parent / "models.json"


@cache
def published() -> dict[str, dict[str, Any]]:
    """The bundled models by name: ``id``, ``source``, ``billions`` (or None) and ``config``."""
    models: dict[str, dict[str, Any]] = json.loads(_MODELS.read_text(encoding="utf-8"))
    return models


def find_config(model: str) -> dict[str, Any] | None:
    """Configuration of a model by folder or by name, without network."""
    path = Path(model).expanduser() / "config.json"
    if path.is_file():
        return _read(path)
    name = bundled_name(model)
    return copy.deepcopy(published()[name]["config"]) if name else None


def bundled_name(model: str) -> str | None:
    """The bundled model that an id or a path names."""
    last = re.split(r"[/\\]|__", model.rstrip("/"))[-1].lower().replace("_", "-")
    known = {name.lower().replace("_", "-"): name for name in published()}
    return next((name for low, name in known.items() if f"{last}-".startswith(f"{low}-")), None)


def loadable(model: str) -> str:
    """What the host loads a model by: of a bundled name alone, the id of the published checkpoint."""
    name = bundled_name(model)
    if name is None or model.lower() != name.lower() or Path(model).expanduser().is_dir():
        return model
    return str(published()[name]["id"])


def require_config(model: str) -> dict[str, Any]:
    """As `find_config`."""
    if (config := find_config(model)) is not None:
        return config
    fix = f"give a folder with a config.json, or one of {', '.join(published())}"
    raise SwiftGrpoExtError("no config.json for this model", where=f"--model {model}", fix=fix)


def _read(path: Path) -> dict[str, Any]:
    try:
        return {**json.loads(path.read_text(encoding="utf-8"))}
    except (ValueError, TypeError) as error:  # no JSON, or no object
        what, fix = f"config.json cannot be read: {error}", "download the model again"
        raise SwiftGrpoExtError(what, where=str(path), fix=fix) from None


OWN = Path(__file__).with_name("shapes.json.gz")
_FORM = "2"  # of what is measured; shapes of another form are measured again


def shape_by_config(config: Mapping[str, object]) -> ModelShape:
    """As `shape_of`, without importing transformers where the shape is known already."""
    key = key_of(config)
    for path in (OWN, _cached(key)):
        if found := _stored(path).get(key):
            return TypeAdapter(ModelShape).validate_python(found)
    made = shape_of(config)
    with suppress(OSError):  # a folder that cannot be written: it is measured again the next time
        _write(_cached(key), {key: asdict(made)})
    return made


def key_of(config: Mapping[str, object]) -> str:
    """Of a configuration, as this release of transformers and this form of measuring see it."""
    parts = [str(installed_version("transformers")), _FORM, config]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


@cache
def _stored(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, EOFError):
        found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        return found
    return {}


def _write(path: Path, shapes: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, gzip.compress(json.dumps(shapes, sort_keys=True).encode(), mtime=0))
    _stored.cache_clear()


def _cached(key: str) -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "swift-grpo-ext" / f"shape-{key}.json.gz"


if __name__ == "__main__":
    configs = [require_config(name) for name in published()]
    _write(OWN, {key_of(config): asdict(shape_of(config)) for config in configs})
