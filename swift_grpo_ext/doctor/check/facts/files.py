"""Files that a launch names: DeepSpeed's, a configuration in place of arguments, and datasets."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.errors import SwiftGrpoExtError, in_a_line
from swift_grpo_ext.findings import NotKnownError

CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_OF_A_CONFIG = 2**16
Row = dict[str, Any]
HOST_PRESETS = ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")


def deepspeed(value: str, find: Callable[[str], Path | None], *, may_be_made: bool) -> dict[str, Any] | str:
    """The DeepSpeed configuration, or a sentence that says why it cannot be read.

    Raises:
        NotKnownError: it is a file that a program of the script may write.
    """
    try:
        if value in HOST_PRESETS:
            path: Path | None = host_table.folder() / "config" / f"{value}.json"
        elif value.startswith(presets.PREFIX):
            path = Path(presets.resolve(value))
        else:
            path = None if "{" in value else find(value)
        if path is None and "{" not in value:
            if may_be_made and value.endswith(".json"):
                raise NotKnownError(f"{value}, which a program of the script may write")
            return f"{value} is neither a preset nor a file"
        config = json.loads(path.read_text(encoding="utf-8") if path else value)
    except SwiftGrpoExtError as error:
        return f"{error.what} {error.fix}"
    except (ValueError, OSError, RecursionError) as error:
        return f"not JSON: {error}"
    return config if isinstance(config, dict) else "not a JSON object"


def config_words(path: Path) -> tuple[list[str], dict[str, str]]:
    """The option words and the variables that ms-swift makes from ``swift rlhf run.yaml``.

    From a Ray configuration it takes what matters for training: the groups' options and the ranks of `train`.

    Raises:
        SwiftGrpoExtError: it cannot be read, or is not a table of arguments.
    """
    import yaml

    try:
        return _words(_config(path))
    except (  # the last three: a list in place of a table, a word in place of a number, no node
        OSError,
        ValueError,
        RecursionError,
        yaml.YAMLError,
        AttributeError,
        TypeError,
        ZeroDivisionError,
    ) as error:
        raise SwiftGrpoExtError(
            f"cannot be read: {in_a_line(error)}"[:200],
            where=str(path),
            fix="one `name: value` a line, or SWIFT_GRPO_EXT_PREFLIGHT=only before the command that "
            "starts it",
        ) from None


def _words(table: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    environ = {str(name): str(value) for name, value in (table.pop("ENV", None) or {}).items()}
    groups = [table.pop(name, None) or {} for name in ("teacher", "rollout", "train")]
    gpus = [group.pop("gpus", 1) for group in groups]
    if groups[-1]:
        nodes = table.pop("nnodes", 1)
        environ |= {"NPROC_PER_NODE": str(gpus[-1] // nodes), "NNODES": str(nodes)}
        table |= {"use_ray": True}
        table.pop("colocate_groups", None)
    words: list[str] = []
    for options in (table, *groups):
        for name, value in options.items():
            many = value if isinstance(value, list) else [value]
            words.append(f"--{name}")
            words += [json.dumps(part) if isinstance(part, dict) else str(part) for part in many]
    return words, environ


def _config(path: Path) -> dict[str, Any]:
    """The table of a configuration file.

    Raises:
        FileNotFoundError: it is not a file, or none that can be opened.
        ValueError: it is not a table, or too large.
    """
    import yaml

    if not path.is_file():  # a pipe would never end
        raise FileNotFoundError("no such file")
    with path.open(encoding="utf-8") as file:
        text = file.read(_MOST_OF_A_CONFIG)
    # YAML aliases may expand exponentially, and each bracket is a recursion of the reader.
    is_nested = len(re.findall(r"(?<![\w/])\*\w", text)) > 20 or text.count("[") + text.count("{") > 500
    if is_nested or len(text) == _MOST_OF_A_CONFIG:
        raise ValueError("too large or too nested")
    table = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    if not isinstance(table, dict) or {"apiVersion", "tasks"}.intersection(table):
        raise ValueError("a manifest, not a table of arguments")
    return {**table}


def drawn(name: str) -> str:
    """The path in ``path#number``, which samples that many rows."""
    return re.sub(r"(?<=.)#[0-9]+\Z", "", name)
