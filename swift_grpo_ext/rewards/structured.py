"""Information extraction into JSON: strict JSON, its schema (nothing outside is looked up), shared fields."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

from swift_grpo_ext.rewards.answer import extract_answer, last_boxed, last_fenced, unwrapped
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.geometry import best_assignment
from swift_grpo_ext.rewards.gold import as_text, gold_value, short_enough, without_array

GOLD = ("solution", "answer")
MAX_DEPTH = 32  # what lies deeper is not compared
MAX_PRODUCT = 60_000
"""Unequal items of lists are matched for the most shared fields while the product of both values' leaves is
not above this; beyond it they are compared in their order, so that no answer takes long."""

Tree: TypeAlias = "str | list[Tree] | dict[str, Tree]"
"""A value with every leaf as text. Empty objects and lists are leaves too."""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str) -> object:
    """Decode strict JSON, without NaN and infinity, or raise ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


def field_f1(predicted: object, gold: object) -> float:
    """F1 of the leaves of two decoded JSON values, 0..1; 1 equals 1.0, true is not 1."""
    ours, theirs = _tree(predicted, 0), _tree(gold, 0)
    both = leaves(ours), leaves(theirs)
    return 2 * _shared(ours, theirs, both[0] * both[1] <= MAX_PRODUCT) / sum(both)


def leaves(tree: Tree) -> int:
    """Number of leaves, at least 1."""
    if isinstance(tree, str):
        return 1
    return sum(map(leaves, tree.values() if isinstance(tree, dict) else tree))


def _tree(value: object, depth: int) -> Tree:
    if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
        return {str(key): _tree(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and value and depth < MAX_DEPTH:
        return [_tree(inner, depth + 1) for inner in value]
    return _leaf(value)


def _leaf(value: object) -> str:
    if isinstance(value, str):
        return f'"{" ".join(value.split())}'
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
    """Whether a value satisfies a checked schema; unscorable if that refers to nothing, or without end."""
    from referencing.exceptions import Unresolvable

    try:
        return bool(_validator(schema).is_valid(value))
    except Unresolvable as error:
        raise Unscorable(f"schema: nothing is at {error.ref!r:.80}") from None
    except RecursionError:
        raise Unscorable("schema or value is nested without end") from None


def _gold_json(columns: Columns) -> object:
    """The decoded gold; None if the row has a schema and no gold."""
    values = [without_array(columns.get(name)) for name in GOLD]
    if columns.get("schema") is not None and all(value in (None, "") or value != value for value in values):
        return None
    gold = gold_value(columns, GOLD)
    try:
        text = last_fenced(gold) if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)
        return parse_json(short_enough(text))
    except (ValueError, TypeError, RecursionError):
        raise Unscorable(f"gold {gold!r:.80} is not JSON") from None


def _schema(columns: Columns) -> object:
    schema = columns.get("schema")
    if isinstance(schema, str):
        try:
            schema = parse_json(schema)
        except ValueError:
            raise Unscorable("schema is not JSON") from None
    schema = True if schema is None else schema
    check_schema(schema)
    return schema


def _gold_json_text(columns: Columns, **_: object) -> str:
    if (gold := _gold_json(columns)) is None:
        raise Unscorable("a schema alone has no gold answer")
    return f"```json\n{as_text(gold) if not isinstance(gold, str) else json.dumps(gold)}\n```"


def _beside_words(text: str) -> str:
    """The text from its first to its last bracket."""
    start = re.search(r"[\[{]", text)
    return text[start.start() : max(text.rfind("}"), text.rfind("]")) + 1] if start else ""


def _parse_answer(answer: str) -> object:
    """The JSON of an answer: in the last fence, in a box, without what wraps it, or beside words."""
    text = last_boxed(answer) or last_fenced(answer)
    for reading in (text, unwrapped(text), _beside_words(text)):
        try:
            return parse_json(reading)
        except ValueError:
            continue
    raise ValueError("not JSON")


@reward(gold=GOLD, reads=("schema",), cost="process", gold_text=_gold_json_text)
def json_schema(completion: str, columns: Columns) -> float:
    """Information extracted as JSON, 0..1: valid JSON, valid by the schema, and the F1 of its fields.

    An answer that is not strict JSON (in a fence or bare), or that the row's schema rejects, is 0. Else the
    score is the F1 of the leaves against those of the gold, or 1 if the row has only a schema. The order of
    list items does not matter: they are matched for the most shared fields, and the fields of an item stay
    together (with more than about 240 fields, unequal items are compared in their order).

    Gold: ``solution`` (or ``answer``): JSON or a decoded value. ``schema``: a JSON Schema, ``$ref`` inside
        it.
    None: Neither gold nor schema, a gold that is not JSON or fails the schema, or a schema that is none.
    Rises with: Right fields; falls with surplus ones.
    Gaming:
        - Surplus fields: lower precision (test_surplus_fields_lower_the_score).
        - The right values in the wrong items: fields of an item count together
          (test_fields_of_an_item_stay_together).
        - NaN, infinities, nesting without end: not JSON (test_nan_is_not_json).
    Source: JSON Schema, by jsonschema; micro F1 over key-value pairs, as in form understanding.
    Example:
        >>> from swift_grpo_ext import get_reward
        >>> gold = {"total": 12.5, "paid": False}
        >>> get_reward("ext_json_schema")('{"total": 12.5, "paid": true}', {"solution": gold})
        0.5
    """
    schema, gold = _schema(columns), _gold_json(columns)
    if gold is not None and not is_valid(gold, schema):
        raise Unscorable("gold fails the schema")
    answer = extract_answer(completion) or ""
    try:
        predicted = _parse_answer(answer)
    except ValueError:
        return 0.0
    if not is_valid(predicted, schema):
        return 0.0
    return 1.0 if gold is None else field_f1(predicted, gold)
