"""Shapes of models that were measured before: building one from its config.json takes seconds.

Those of the bundled configurations are part of the package, others are kept in the user's cache;
``python -m swift_grpo_ext.doctor.plan.shape_store`` writes the package's own.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_type_hints

from swift_grpo_ext.doctor.plan.catalogue import bundled, require_config
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.doctor.plan.sizes import ModelShape, VisionShape
from swift_grpo_ext.folders import write_whole
from swift_grpo_ext.versions import installed_version

OWN = Path(__file__).with_name("shapes.json.gz")
_FORM = "2"  # of what is measured; shapes of another form are measured again


def shape_by_config(config: Mapping[str, object]) -> ModelShape:
    """As `shape_of`, without importing transformers where the shape is known already."""
    key = key_of(config)
    found = _own().get(key) or _read(_cached(key)).get(key)
    if found is not None:
        return _shape(found)
    made = shape_of(config)
    with suppress(OSError):  # a folder that cannot be written: it is measured again the next time
        _write(_cached(key), {key: asdict(made)})
    return made


def key_of(config: Mapping[str, object]) -> str:
    """Of a configuration, as this release of transformers and this form of measuring see it."""
    parts = [str(installed_version("transformers")), _FORM, config]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def _own() -> dict[str, Any]:
    return _read(OWN)


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, EOFError):
        found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        return found
    return {}


def _write(path: Path, shapes: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, gzip.compress(json.dumps(shapes, sort_keys=True).encode(), mtime=0))


def _cached(key: str) -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "swift-grpo-ext" / f"shape-{key}.json.gz"


def _shape(table: dict[str, Any]) -> ModelShape:
    """A shape as it was before it was written."""
    kinds = get_type_hints(ModelShape)
    parts = {
        name: kinds[name](**value) for name, value in table.items() if is_dataclass(kinds[name]) and value
    }
    vision = VisionShape(**table["vision"]) if table["vision"] else None
    linears = tuple((inputs, outputs) for inputs, outputs in table["linears"])
    return ModelShape(
        **{**table, **parts, "vision": vision, "linears": linears, "modules": tuple(table["modules"])}
    )


if __name__ == "__main__":
    configs = [require_config(name) for name in bundled()]
    _write(OWN, {key_of(config): asdict(shape_of(config)) for config in configs})
