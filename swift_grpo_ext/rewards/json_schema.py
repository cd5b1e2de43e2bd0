"""Information extraction into JSON: strict JSON, its schema (nothing outside is looked up), shared fields."""

import json
from collections import Counter
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
from swift_grpo_ext.rewards.gold.geometry import best_assignment
from swift_grpo_ext.rewards.json_text import Json, decoded, strict
from swift_grpo_ext.rewards.place import answer_of, short_enough, unfenced, unwrapped

GOLD = ("solution", "answer")
MAX_DEPTH = 32  # what lies deeper is not compared
# Up to this product of both values' leaf counts, unequal items of lists are matched for the most shared
# fields; beyond it they are compared in their order, so that no answer takes long.
MAX_PRODUCT = 60_000
# Every leaf as text, also empty objects and lists; values that are equal have the same hash.
Tree: TypeAlias = "str | tuple[Tree, ...] | frozenset[tuple[str, Tree]]"


def field_f1(predicted: Json, gold: Json, typed: bool = True) -> float:
    """F1 of the leaves of two decoded JSON values, 0..1, compared as `tree_of` makes them."""
    ours, theirs = (tree_of(value, typed) for value in (predicted, gold))
    both = leaves(ours), leaves(theirs)
    return 2 * _shared(ours, theirs, both[0] * both[1] <= MAX_PRODUCT) / sum(both)


def leaves(tree: Tree) -> int:
    """Number of leaves, at least 1."""
    if isinstance(tree, str):
        return 1
    return sum(map(leaves, dict(tree).values() if isinstance(tree, frozenset) else tree))


def tree_of(value: Json, typed: bool = True, depth: int = 0) -> Tree:
    """A decoded JSON value with every leaf as text: 1 equals 1.0; if `typed`, "1" and true are not 1."""
    if isinstance(value, str):
        return '"' * typed + " ".join(value.split())
    if not isinstance(value, (Mapping, list, tuple)):
        return repr(restored(value))
    if not value or depth == MAX_DEPTH:
        return f"{type(value).__name__}, {'filled' if value else 'empty'}"
    if isinstance(value, Mapping):
        return frozenset((str(key), tree_of(inner, typed, depth + 1)) for key, inner in value.items())
    return tuple(tree_of(inner, typed, depth + 1) for inner in value)


def _shared(one: Tree, other: Tree, matched: bool) -> int:
    """Number of leaves that both have at the same place; `matched` as `MAX_PRODUCT` says."""
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        ours, theirs = dict(one), dict(other)
        return sum(_shared(ours[key], theirs[key], matched) for key in ours.keys() & theirs.keys())
    if not (isinstance(one, tuple) and isinstance(other, tuple)):
        return int(one == other)
    equal = Counter(one) & Counter(other)
    left, right = (list((Counter(items) - equal).elements()) for items in (one, other))
    pairs = list(zip(left, right, strict=False))
    if matched:
        gains = [[_shared(item, counterpart, matched) for counterpart in right] for item in left]
        pairs = [(left[row], right[column]) for row, column in best_assignment(gains)]
    return sum(map(leaves, equal.elements())) + sum(_shared(*pair, matched) for pair in pairs)


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
    if isinstance(schema, dict) and not all(isinstance(key, str) for key in schema):
        raise Unscorable("schema is not a JSON object")
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
    Else the score is the F1 of the leaves against those of the gold, or 1 if the row has only a schema. The
    order of list items does not matter: they are matched for the most shared fields, and the fields of an
    item stay together (with more than about 240 fields, unequal items are compared in their order).

    Gold: ``solution`` (or ``answer``): JSON or a decoded value. ``schema``: a JSON Schema, ``$ref`` inside
        it.
    Raises:
        NoGold: The row has neither gold nor schema.
        Unscorable: A gold that is not JSON or fails the schema, or a schema that is not valid.
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
