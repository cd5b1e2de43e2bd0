"""What the installed DeepSpeed's configuration classes take, read from its source.

Importing DeepSpeed takes half a minute. A key that its classes lack, or a value of another kind, it refuses;
what is more than a key and its kind is not judged here.
"""

import ast
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError, create_model

from swift_grpo_ext.errors import NEAR, nearest

# Each refers to classes of itself and of those before it only.
_FILES = ("runtime/zero/offload_config.py", "runtime/zero/config.py", "runtime/precision_config.py")
_BLOCKS = {
    "zero_optimization": "DeepSpeedZeroConfig",
    "bf16": "DeepSpeedBF16Config",
    "fp16": "DeepSpeedFP16Config",
}


def objection(config: Mapping[str, object]) -> str:
    """What DeepSpeed refuses in a configuration; empty for nothing, and where it is not installed."""
    for block, name in _BLOCKS.items():
        values = config.get(block)
        model = _kinds().get(name)
        if isinstance(values, dict) and model:
            try:
                model.model_validate(_said(values))
            except ValidationError as error:
                fault = error.errors()[0]
                more = f", not {fault['input']!r:.40}"
                if fault["type"] == "extra_forbidden":
                    schema = model.model_json_schema()
                    parts = (schema, *schema.get("$defs", {}).values())
                    known = {key for part in parts for key in part.get("properties", ())}
                    close = nearest(str(fault["loc"][-1]), known, NEAR)
                    more = f"; did you mean {close}?" if close else ""
                return f"{'.'.join(map(str, (block, *fault['loc'])))}: {fault['msg']}{more}"
    return ""


def _said(values: object) -> Any:
    """Values without those that transformers fills in."""
    if not isinstance(values, dict):
        return values
    return {key: _said(value) for key, value in values.items() if value not in ("auto", None)}


@lru_cache(maxsize=1)
def _kinds() -> dict[str, Any]:
    """Types of fields by name: DeepSpeed's classes as models, its enumerations as the values they allow."""
    kinds: dict[str, Any] = {"int": int, "float": float, "bool": bool}
    spec = find_spec("deepspeed")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    for path in (Path(folder) / file for folder in folders for file in _FILES):
        for node in ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else ():
            if isinstance(node, ast.ClassDef):
                kinds[node.name] = _read(node, kinds)
    return kinds


def _read(node: ast.ClassDef, kinds: Mapping[str, Any]) -> Any:
    fields: dict[str, Any] = {}
    members: list[object] = []
    for one in node.body:
        match one:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                keywords = value.keywords if isinstance(value, ast.Call) else ()
                alias = next((ast.literal_eval(word.value) for word in keywords if word.arg == "alias"), None)
                kind = ast.unparse(annotation).removeprefix("Optional[").removesuffix("]")
                fields[name] = (kinds.get(kind, Any), Field(None, alias=alias))
            case ast.Assign(value=ast.Constant(value=value)):
                members.append(value)
    if not fields:
        return Literal[tuple(members)] if members else Any
    strict = ConfigDict(extra="forbid", populate_by_name=True, protected_namespaces=())
    return create_model(node.name, __config__=strict, **fields)
