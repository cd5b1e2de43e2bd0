"""Information extraction into JSON: strict JSON, its schema (nothing outside is looked up), shared fields."""

import json
from collections.abc import Mapping
from typing import Any

from swift_grpo_ext.rewards.contract import (
    Columns,
    NoGold,
    Outcome,
    Unread,
    Unscorable,
    gold_value,
    restored,
    reward,
)
from swift_grpo_ext.rewards.json_text import Json, decoded, strict
from swift_grpo_ext.rewards.place import answer_of, short_enough, unfenced, unwrapped

GOLD = ("solution", "answer")
MAX_DEPTH = 32  # what lies deeper is not compared


def field_f1(predicted: Json, gold: Json, typed: bool = True) -> float:
    """F1 of the leaves of two decoded JSON values, 0..1: those with the same path and text are shared."""
    ours, theirs = leaves(predicted, typed), leaves(gold, typed)
    return 2 * len(ours.items() & theirs.items()) / (len(ours) + len(theirs))


def leaves(value: Json, typed: bool, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], str]:
    """Path to text of every leaf, empty objects and lists too: 1 equals 1.0; if `typed`, "1" is not 1."""
    if isinstance(value, str):
        return {path: '"' * typed + " ".join(value.split())}
    if not isinstance(value, (Mapping, list, tuple)):
        return {path: repr(restored(value))}
    if not value or len(path) == MAX_DEPTH:
        return {path: f"{type(value).__name__}, {'filled' if value else 'empty'}"}
    parts = value.items() if isinstance(value, Mapping) else enumerate(value)
    inner = (leaves(part, typed, (*path, key)) for key, part in parts)
    return {leaf: text for found in inner for leaf, text in found.items()}


def validator_of(schema: Json) -> Any:
    """The validator of a schema; without one, every value is valid.

    Raises:
        Unscorable: The schema is not a JSON Schema.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    schema = decoded(schema, strict, otherwise=schema)
    schema = True if schema is None else schema
    try:
        kind: Any = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
    except (SchemaError, RecursionError, TypeError, AttributeError) as error:
        raise Unscorable(f"schema is not a JSON Schema: {getattr(error, 'message', error)!s:.160}") from None
    return kind(schema, registry=Registry())


def fault_of(value: Json, validator: Any) -> str:
    """The first fault of a value by a schema, in words; empty if it is valid.

    Raises:
        Unscorable: A reference of the schema leads nowhere, or it is nested without end.
    """
    from referencing.exceptions import Unresolvable

    try:
        return next((error.message for error in validator.iter_errors(value)), "")
    except (Unresolvable, RecursionError) as error:
        raise Unscorable(f"schema: {error!s:.160}") from None


def _gold_json(columns: Columns) -> Json:
    """The decoded gold.

    Raises:
        Unscorable: The gold is not JSON.
    """
    gold = gold_value(columns, GOLD)
    try:
        return strict(short_enough(unfenced(gold) if isinstance(gold, str) else json.dumps(gold)))
    except (ValueError, TypeError, RecursionError):
        raise Unscorable(f"gold {gold!r:.80} is not JSON") from None


def _gold_json_text(columns: Columns, **_: object) -> str:
    return f"```json\n{json.dumps(_gold_json(columns), ensure_ascii=False)}\n```"


@reward(gold=GOLD, reads=("schema",), cost="process", gold_text=_gold_json_text)
def json_schema(completion: str, columns: Columns) -> Outcome:
    """Information extracted as JSON, 0..1: valid JSON, valid by the schema, and the F1 of its fields.

    An answer that is not strict JSON (the last fence, or all of it), or that the row's schema rejects, is 0.
    Else the score is the F1 of the leaves against those of the gold, or 1 if the row has only a schema. Items
    of lists are compared in their order: ask for the one that the gold has.

    Gold: ``solution`` (or ``answer``): JSON or a decoded value. ``schema``: a JSON Schema, ``$ref`` inside
        it.
    Raises:
        NoGold: The row has neither gold nor schema.
        Unscorable: A gold that is not JSON or fails the schema, or a schema that is not valid.
        Unread: The answer is not strict JSON: 0.
    Rises with: Right fields; falls with surplus ones.
    Gaming:
        - Surplus fields: lower precision (test_surplus_fields_lower_the_score).
        - The right values in the wrong items: a value counts in its own item
          (test_fields_of_an_item_stay_together).
        - NaN, infinities, nesting without end: not JSON (test_nan_is_not_json).
    Source: JSON Schema, by jsonschema; micro F1 over key-value pairs, as in form understanding.
    Example:
        >>> gold = {"total": 12.5, "paid": False}
        >>> get_reward("ext_json_schema")('{"total": 12.5, "paid": true}', {"solution": gold})
        0.5
    """
    validator = validator_of(columns.get("schema"))
    try:
        golds = [_gold_json(columns)]
    except NoGold:
        if validator.schema is True:
            raise
        golds = []
    if fault := "".join(fault_of(gold, validator) for gold in golds):
        raise Unscorable(f"gold fails the schema: {fault:.160}")
    answer = answer_of(completion, "fenced")
    predicted = decoded(answer, strict, lambda text: strict(unwrapped(text)), otherwise=...)
    if predicted is ...:
        raise Unread(answer, "JSON (an object or a list, each key once)")
    if fault := fault_of(predicted, validator):
        return Outcome(0.0, f"the schema refuses it: {fault:.160}", read=answer[:200])
    score = min([1.0, *(field_f1(predicted, gold) for gold in golds)])
    return Outcome.of(score, answer, json.dumps(golds, ensure_ascii=False)[1:-1])
