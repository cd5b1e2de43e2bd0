"""JSON Schema, by jsonschema; nothing outside of the schema is ever looked up."""

from __future__ import annotations

from typing import Any

from swift_grpo_ext.rewards.contract import Unscorable


def _validator(schema: object) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    kind = validator_for(schema, default=Draft202012Validator)
    return kind(schema, registry=Registry())


def check_schema(schema: object) -> None:
    """Refuse what is no schema: the row is unscorable."""
    from jsonschema.exceptions import SchemaError

    named = isinstance(schema, dict) and all(isinstance(key, str) for key in schema)
    if not (named or isinstance(schema, bool)):
        raise Unscorable("schema is no JSON object")
    try:
        _validator(schema).check_schema(schema)
    except SchemaError as error:
        raise Unscorable(f"schema: {error.message:.160}") from None
    except (RecursionError, TypeError, AttributeError):
        raise Unscorable("schema is not JSON, or nested too deep") from None


def is_valid(value: object, schema: object) -> bool:
    """Whether a decoded JSON value satisfies a schema that `check_schema` let pass.

    Unscorable if the schema refers to something that it does not hold, or to itself without end.
    """
    from referencing.exceptions import Unresolvable

    try:
        return bool(_validator(schema).is_valid(value))
    except Unresolvable as error:
        raise Unscorable(f"schema: nothing is at {error.ref!r:.80}") from None
    except RecursionError:
        raise Unscorable("schema or value is nested without end") from None
