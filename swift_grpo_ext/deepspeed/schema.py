"""What the installed DeepSpeed's configuration classes take, read from its source.

Importing DeepSpeed takes half a minute. A key that its classes lack, or a value of another kind, it refuses;
what is more than a key and its kind is not judged here.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from swift_grpo_ext.errors import NEAR, nearest

_FILES = ("runtime/zero/config.py", "runtime/zero/offload_config.py", "runtime/precision_config.py")
_BLOCKS = {
    "zero_optimization": "DeepSpeedZeroConfig",
    "bf16": "DeepSpeedBF16Config",
    "fp16": "DeepSpeedFP16Config",
}
_BOOLEANS = frozenset(["true", "false", "yes", "no", "on", "off", "t", "f", "y", "n", "1", "0", "1.0", "0.0"])


@dataclass
class _Class:
    """Fields with the names of their types, and the members of an enumeration."""

    fields: dict[str, str] = field(default_factory=dict)
    members: list[object] = field(default_factory=list)


def objection(config: Mapping[str, object]) -> str:
    """What DeepSpeed refuses in a configuration; empty for nothing, and where it is not installed."""
    for block, name in _BLOCKS.items():
        values = config.get(block)
        if isinstance(values, dict) and (found := _of_class(values, name, block)):
            return found
    return ""


def _of_class(values: Mapping[str, object], name: str, place: str) -> str:
    known = _classes().get(name, _Class()).fields
    for key, value in values.items() if known else ():
        where, of_kind = f"{place}.{key}", _classes().get(known.get(key, ""))
        if key not in known and value != "auto":
            close = nearest(key, known, NEAR)
            return f"{where}: Extra inputs are not permitted{f'; did you mean {close}?' if close else ''}"
        if value in ("auto", None):
            continue
        if isinstance(value, dict) and of_kind:
            if found := _of_class(value, known[key], where):
                return found
        elif of_kind and of_kind.fields:
            return f"{where}: Input should be a table, not {value!r:.40}"
        elif wanted := _another_kind(value, known[key]):
            return f"{where}: Input should be {wanted}, not {value!r:.40}"
    return ""


def _another_kind(value: object, kind: str) -> str:
    """What a value should be, if it is none of that; pydantic takes numbers and booleans as text, too."""
    if kind in ("int", "float") and not isinstance(value, (int, float)):
        try:
            float(str(value))
        except ValueError:
            return "a number"
    if kind == "bool" and str(value).lower() not in _BOOLEANS:
        return "a boolean"
    members = _classes()[kind].members if kind in _classes() else []
    return f"one of {', '.join(map(str, dict.fromkeys(members)))}" if members and value not in members else ""


@lru_cache(maxsize=1)
def _classes() -> dict[str, _Class]:
    spec = find_spec("deepspeed")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    paths = [Path(folder) / file for folder in folders for file in _FILES]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]
    return {node.name: _read(node) for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def _read(node: ast.ClassDef) -> _Class:
    made = _Class()
    for one in node.body:
        match one:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                keywords = value.keywords if isinstance(value, ast.Call) else ()
                aliases = [ast.literal_eval(word.value) for word in keywords if word.arg == "alias"]
                kind = ast.unparse(annotation).removeprefix("Optional[").removesuffix("]")
                made.fields |= dict.fromkeys([name, *aliases], kind)
            case ast.Assign(value=ast.Constant(value=value)):
                made.members.append(value)
    return made
