"""Files that a launch names: DeepSpeed's, a configuration in place of arguments, and rows of data sets."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import NotKnownError

_EXACT = "SWIFT_GRPO_EXT_PREFLIGHT=only before the command that starts it checks exactly what runs"
CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_BYTES = 64 * 2**20
_MOST_OF_A_CONFIG = 2**16
Row = dict[str, Any]
HOST_PRESETS = ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")


def deepspeed(value: str, find: Callable[[str], Path | None], *, may_be_made: bool) -> dict[str, Any] | str:
    """The configuration, or a sentence that says why it cannot be read.

    Raises:
        NotKnownError: it is a file that a program of the script may write.
    """
    path: Path | None = None
    if value in HOST_PRESETS:
        path = host_table.folder() / "config" / f"{value}.json"
    elif value.startswith(presets.PREFIX):
        try:
            path = Path(presets.resolve(value))
        except SwiftGrpoExtError as error:
            return f"{error.what} {error.fix}"
    elif "{" not in value:
        path = find(value) if len(value) < 1024 else None
        if path is None and may_be_made and value.endswith(".json"):
            raise NotKnownError(f"{value}, which a program of the script may write")
        if path is None:
            return f"{value} is neither a preset nor a file"
    try:
        config = json.loads(path.read_text(encoding="utf-8") if path else value)
    except (ValueError, OSError) as error:
        return f"no JSON: {error}"
    return config if isinstance(config, dict) else "no JSON object"


def config_words(path: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Options with their words, and variables, as ms-swift makes them of ``swift rlhf run.yaml``.

    Of a configuration of Ray it takes what holds for training: the groups' options and the ranks of `train`.

    Raises:
        SwiftGrpoExtError: it cannot be read, or is not a table of arguments.
    """
    table = _config(path)
    environ = {str(name): str(value) for name, value in (table.pop("ENV", None) or {}).items()}
    groups = [table.pop(name, None) for name in ("teacher", "rollout", "train")]
    for group in filter(None, groups):
        table |= {name: value for name, value in group.items() if name != "gpus"}
    if groups[-1]:
        nodes = table.pop("nnodes", 1)
        environ |= {"NPROC_PER_NODE": str(groups[-1].get("gpus", 1) // nodes), "NNODES": str(nodes)}
        table |= {"use_ray": True}
        table.pop("colocate_groups", None)
    words: dict[str, list[str]] = {}
    for name, value in table.items():
        many = value if isinstance(value, list) else [value]
        words[str(name)] = [json.dumps(part) if isinstance(part, dict) else str(part) for part in many]
    return words, environ


def _config(path: Path) -> dict[str, Any]:
    """The table of a configuration file.

    Raises:
        SwiftGrpoExtError: it cannot be read, or is not a table of arguments.
    """
    import yaml

    try:
        is_large = path.stat().st_size > _MOST_OF_A_CONFIG
        text = "[]" if is_large else path.read_text(encoding="utf-8")
        # An alias may stand for a thousand others, and a bracket for a turn of the reader.
        if is_large or len(re.findall(r"(?<!\S)\*\w", text)) > 20 or text.count("[") + text.count("{") > 500:
            raise SwiftGrpoExtError("too large or too nested", where=str(path), fix="a plain configuration")
        table = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        first = str(error).splitlines()[0]
        raise SwiftGrpoExtError(f"cannot be read: {first}", where=str(path), fix="check the file") from None
    if not isinstance(table, dict):
        raise SwiftGrpoExtError("not a table of arguments", where=str(path), fix="one `name: value` a line")
    if "apiVersion" in table or "tasks" in table:
        raise SwiftGrpoExtError("a manifest, not a table of arguments", where=str(path), fix=_EXACT)
    return table


def drawn(name: str) -> tuple[str, int | None]:
    """Path and number of rows of ``path#number``."""
    head, _, tail = name.rpartition("#")
    return (head, int(tail)) if head and tail.isdecimal() else (name, None)


def rows_of(path: Path) -> Iterator[tuple[int, Row | None]]:
    """Rows with their line numbers, or numbers in a list; None for one that is no object."""
    with path.open(encoding="utf-8", errors="replace") as file:
        rows: Iterable[Any] = (_parsed(line) if line.strip() else ... for line in file)
        if path.suffix == ".json" and file.read(4096).lstrip().startswith("["):
            many = _parsed(path.read_text(encoding="utf-8")) if path.stat().st_size <= _MOST_BYTES else []
            rows = many if isinstance(many, list) else [None]
        else:
            file.seek(0)
        for number, row in enumerate(rows, start=1):
            if row is not ...:  # an empty line
                yield number, row if isinstance(row, dict) else None


def _parsed(text: str) -> Any:
    """A decoded JSON value; None for what is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None
