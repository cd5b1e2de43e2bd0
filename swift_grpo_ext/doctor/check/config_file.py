"""A configuration file in place of arguments, as in ``swift rlhf run.yaml``."""

from __future__ import annotations

import json
from pathlib import Path

from swift_grpo_ext.errors import SwiftGrpoExtError

CONFIG_SUFFIXES = (".yaml", ".yml", ".json")


def config_words(path: Path, text: str | None = None) -> tuple[list[str], dict[str, str]]:
    """Words and variables of a configuration file, as the host makes them of ``swift rlhf run.yaml``."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8") if text is None else text
        table = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        first = str(error).splitlines()[0]
        raise SwiftGrpoExtError(f"cannot be read: {first}", where=str(path), fix="check the file") from None
    if not isinstance(table, dict):
        raise SwiftGrpoExtError("no table of arguments", where=str(path), fix="one `name: value` a line")
    environ = {str(name): str(value) for name, value in (table.pop("ENV", None) or {}).items()}
    words: list[str] = []
    for name, value in table.items():
        many = value if isinstance(value, list) else [value]
        words += [f"--{name}", *(json.dumps(v) if isinstance(v, dict) else str(v) for v in many)]
    return words, environ
