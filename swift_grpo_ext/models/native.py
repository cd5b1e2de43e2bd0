"""Whether a checkpoint is of a class that transformers has itself."""

from __future__ import annotations

import json
from pathlib import Path

from swift_grpo_ext.models.families import FAMILIES


def is_native(folder: str | Path) -> bool:
    """True if config.json names an architecture that transformers has itself and this package describes."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    named = config.get("architectures") if isinstance(config, dict) else None
    return bool(set(named or ()) & {facts.architecture for facts in FAMILIES.values()})
