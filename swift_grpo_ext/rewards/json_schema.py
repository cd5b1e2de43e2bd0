"""Information extraction into JSON: strict JSON, its schema (nothing outside is looked up), shared fields."""

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

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
from swift_grpo_ext.rewards.gold.columns import as_text, short_enough
from swift_grpo_ext.rewards.gold.geometry import best_assignment
from swift_grpo_ext.rewards.json_text import Json, decoded, strict
from swift_grpo_ext.rewards.place import answer_of, unfenced, unwrapped

GOLD = ("solution", "answer")
MAX_DEPTH = 32  # what lies deeper is not compared
# While the product of both values' leaves is not above this, unequal items of lists are matched for the most
# shared fields; beyond it they are compared in their order, so that no answer takes long.
MAX_PRODUCT = 60_000
Tree: TypeAlias = "str | list[Tree] | dict[str, Tree]"  # every leaf as text, also empty objects and lists


def field_f1(predicted: Json, gold: Json, typed: bool = True) -> float:
    """F1 of the leaves of two decoded JSON values, 0..1, compared as `tree_of` makes them."""
    ours, theirs = (tree_of(value, typed) for value in (predicted, gold))
    both = leaves(ours), leaves(theirs)
    return 2 * _shared(ours, theirs, both[0] * both[1] <= MAX_PRODUCT) / sum(both)


def leaves(tree: Tree) -> int:
    """Number of leaves, at least 1."""
    if isinstance(tree, str):
        return 1
    return sum(map(leaves, tree.values() if isinstance(tree, dict) else tree))


def tree_of(value: Json, typed: bool = True, depth: int = 0) -> Tree:
    """A decoded JSON value with every leaf as text: 1 equals 1.0; if `typed`, "1" and true are not 1."""
    if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
        return {str(key): tree_of(inner, typed, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and value and depth < MAX_DEPTH:
        return [tree_of(inner, typed, depth + 1) for inner in value]
    if isinstance(value, str):
        return '"' * typed + " ".join(value.split())
    if isinstance(value, (Mapping, list, tuple)):
        return ("{" if isinstance(value, Mapping) else "[") + ("..." if value else "")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return repr(value)


def _shared(one: Tree, other: Tree, matched: bool) -> int:
    """Number of leaves that both have at the same place; `matched` as `MAX_PRODUCT` says."""
    if isinstance(one, str) or isinstance(other, str):
        return int(one == other)
    if isinstance(one, dict) and isinstance(other, dict):
        return sum(_shared(one[key], other[key], matched) for key in one.keys() & other.keys())
    if isinstance(one, dict) or isinstance(other, dict):
        return 0
    total, ours, theirs = _without_equals(one, other)
    if not matched:
        return total + sum(_shared(a, b, matched) for a, b in zip(ours, theirs, strict=False))
    gains = [[_shared(item, counterpart, matched) for counterpart in theirs] for item in ours]
    return total + sum(gains[row][column] for row, column in best_assignment(gains))


def _without_equals(one: list[Tree], other: list[Tree]) -> tuple[int, list[Tree], list[Tree]]:
    """Leaves of the items that both lists have, and the rest of each that may still share some."""
    waiting: dict[str, list[Tree]] = defaultdict(list)
    for item in other:
        waiting[json.dumps(item, sort_keys=True)].append(item)
    total = 0
    ours: list[Tree] = []
    for item in one:
        if equal := waiting[json.dumps(item, sort_keys=True)]:
            total += leaves(equal.pop())
        elif not isinstance(item, str):
            ours.append(item)
    theirs: list[Tree] = [item for items in waiting.values() for item in items if not isinstance(item, str)]
    return total, ours, theirs


def _validator(schema: Json) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    kind = validator_for(schema, default=Draft202012Validator)
    return kind(schema, registry=Registry())


def check_schema(schema: Json) -> None:
    """Refuse what is no schema: the row is unscorable.

    Raises:
        Unscorable: The schema is not a JSON Schema.
    """
    from jsonschema.exceptions import SchemaError

    if isinstance(schema, dict) and not all(isinstance(key, str) for key in schema):
        raise Unscorable("schema is no JSON object")
    try:
        _validator(schema).check_schema(schema)
    except SchemaError as error:
        raise Unscorable(f"schema: {error.message:.160}") from None
    except (RecursionError, TypeError, AttributeError):
        raise Unscorable("schema is not JSON, or nested too deep") from None


def is_valid(value: Json, schema: Json) -> bool:
    """Whether a value satisfies a checked schema; unscorable if that refers to nothing, or without end.

    Raises:
        Unscorable: The schema refers to nothing, or is nested without end.
    """
    from referencing.exceptions import Unresolvable

    try:
        return bool(_validator(schema).is_valid(value))
    except Unresolvable as error:
        raise Unscorable(f"schema: nothing is at {error.ref!r:.80}") from None
    except RecursionError:
        raise Unscorable("schema or value is nested without end") from None


def _gold_json(columns: Columns) -> Json:
    """The decoded gold; None if the row has a schema and no gold.

    Raises:
        NoGold: The row has neither.
        Unscorable: The gold is not JSON.
    """
    try:
        gold = gold_value(columns, GOLD)
    except NoGold:
        if columns.get("schema") is None:
            raise
        return None
    try:
        text = unfenced(gold) if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)
        return restored(strict(short_enough(text)))
    except (ValueError, TypeError, RecursionError):
        raise Unscorable(f"gold {gold!r:.80} is not JSON") from None


def _schema(columns: Columns) -> Json:
    schema = True if columns.get("schema") is None else columns["schema"]
    if isinstance(schema, str):
        decoded_schema = decoded(schema, strict)
        if not decoded_schema:
            raise Unscorable("schema is not JSON")
        schema = decoded_schema[0]
    check_schema(schema)
    return schema


def _gold_json_text(columns: Columns, **_: object) -> str:
    gold = _gold_json(columns)
    if gold is None:
        raise Unscorable("a schema alone has no gold answer")
    return f"```json\n{as_text(gold) if not isinstance(gold, str) else json.dumps(gold)}\n```"


@reward(gold=GOLD, reads=("schema",), cost="process", gold_text=_gold_json_text)
def json_schema(completion: str, columns: Columns) -> Outcome:
    """Information extracted as JSON, 0..1: valid JSON, valid by the schema, and the F1 of its fields.

    An answer that is not strict JSON (the last fence, or all of it), or that the row's schema rejects, is 0.
    Else the score is the F1 of the leaves against those of the gold, or 1 if the row has only a schema. The
    order of list items does not matter: they are matched for the most shared fields, and the fields of an
    item stay together (with more than about 240 fields, unequal items are compared in their order).

    Gold: ``solution`` (or ``answer``): JSON or a decoded value. ``schema``: a JSON Schema, ``$ref`` inside
        it.
    Raises:
        Unscorable: Neither gold nor schema, a gold that is not JSON or fails the schema, or a schema that is
            none.
        Unread: The answer is not strict JSON: 0.
    Rises with: Right fields; falls with surplus ones.
    Gaming:
        - Surplus fields: lower precision (test_surplus_fields_lower_the_score).
        - The right values in the wrong items: fields of an item count together
          (test_fields_of_an_item_stay_together).
        - NaN, infinities, nesting without end: not JSON (test_nan_is_not_json).
    Source: JSON Schema, by jsonschema; micro F1 over key-value pairs, as in form understanding.
    Example:
        >>> gold = {"total": 12.5, "paid": False}
        >>> get_reward("ext_json_schema")('{"total": 12.5, "paid": true}', {"solution": gold})
        0.5
    """
    schema = _schema(columns)
    gold = _gold_json(columns)
    if gold is not None and not is_valid(gold, schema):
        raise Unscorable("gold fails the schema")
    answer = answer_of(completion, "fenced")
    predicted = decoded(answer, strict) or decoded(unwrapped(answer), strict)
    if not predicted:
        raise Unread(answer, "JSON (an object or a list, each key once)")
    if not is_valid(predicted[0], schema):
        return Outcome(0.0, f"the schema refuses it: {json.dumps(schema)[:120]}", read=answer[:200])
    score = 1.0 if gold is None else field_f1(restored(predicted[0]), gold)
    return Outcome.of(score, answer, json.dumps(gold, ensure_ascii=False))
