"""A small, linear-time part of JSON Schema: what extraction tasks use, and nothing that can hang."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from swift_grpo_ext.rewards.contract import Unscorable

Schema: TypeAlias = Mapping[str, Any]

_MAX_DEPTH = 64
_ANNOTATIONS = {"title", "description", "$schema", "$id", "$comment", "default", "examples", "format"}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _has_type(value: Any, names: Any) -> bool:
    listed = names if isinstance(names, list) else [names]
    return any(_TYPES[name](value) for name in listed)


# Keyword to (type of the values that it limits, limit).
_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("number", lambda value, bound: value >= bound),
    "maximum": ("number", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("number", lambda value, bound: value > bound),
    "exclusiveMaximum": ("number", lambda value, bound: value < bound),
    "minLength": ("string", lambda value, bound: len(value) >= bound),
    "maxLength": ("string", lambda value, bound: len(value) <= bound),
    "minItems": ("array", lambda value, bound: len(value) >= bound),
    "maxItems": ("array", lambda value, bound: len(value) <= bound),
    "minProperties": ("object", lambda value, bound: len(value) >= bound),
    "maxProperties": ("object", lambda value, bound: len(value) <= bound),
    "required": ("object", lambda value, names: all(name in value for name in names)),
}
_KEYWORDS = {
    "type",
    "enum",
    "const",
    "properties",
    "additionalProperties",
    "items",
    "anyOf",
    "allOf",
    *_LIMITS,
}


_SHAPES = {
    "properties": "object",
    "anyOf": "array",
    "allOf": "array",
    "enum": "array",
    "required": "array",
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), "integer"),
    **dict.fromkeys(("minProperties", "maxProperties"), "integer"),
}
"""What the value of a keyword must be."""


def check_schema(schema: Any, depth: int = 0) -> None:
    """Refuse what this module does not read.

    Raises:
        Unscorable: Names the keyword that is unknown, or whose value is of another kind than it takes.
    """
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        raise Unscorable("schema is no JSON object, or nested too deep")
    unknown = set(schema) - _KEYWORDS - _ANNOTATIONS
    if unknown:
        raise Unscorable(f"schema keyword {min(map(str, unknown))!r} is not supported")
    types = schema.get("type", [])
    if not all(name in list(_TYPES) for name in (types if isinstance(types, list) else [types])):
        raise Unscorable(f"schema type {types!r:.80} is unknown")
    for keyword, shape in _SHAPES.items():
        if keyword in schema and not _TYPES[shape](schema[keyword]):
            raise Unscorable(f"schema keyword {keyword!r} takes one {shape}, not {schema[keyword]!r:.40}")
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", []), *schema.get("allOf", [])]
    inner += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for part in inner:
        check_schema(part, depth + 1)


def is_valid(value: Any, schema: Any) -> bool:
    """Whether a decoded JSON value satisfies a schema that `check_schema` let pass."""
    if isinstance(schema, bool):
        return schema
    if "type" in schema and not _has_type(value, schema["type"]):
        return False
    if "enum" in schema and not any(same(value, allowed) for allowed in schema["enum"]):
        return False
    if "const" in schema and not same(value, schema["const"]):
        return False
    for keyword, (limited, holds) in _LIMITS.items():
        if keyword in schema and _TYPES[limited](value) and not holds(value, schema[keyword]):
            return False
    if not all(is_valid(value, part) for part in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(is_valid(value, part) for part in schema["anyOf"]):
        return False
    return _inner_valid(value, schema)


def _inner_valid(value: Any, schema: Schema) -> bool:
    if isinstance(value, list):
        return all(is_valid(item, schema.get("items", True)) for item in value)
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        return all(is_valid(item, properties.get(key, others)) for key, item in value.items())
    return True


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 is 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)
