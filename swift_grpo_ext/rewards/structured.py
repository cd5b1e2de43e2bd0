"""Information extraction into JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from swift_grpo_ext.rewards.answer import extract_answer, last_fenced
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold import as_text, gold_value, short_enough, without_array
from swift_grpo_ext.rewards.schema import check_schema, is_valid

GOLD = ("solution", "answer")
MAX_DEPTH = 32


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str) -> Any:
    """Decode strict JSON: no NaN, no infinity.

    Raises:
        ValueError: Not JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


def leaves(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """(path, value) of every leaf; list items share one path, so their order does not matter.

    Empty objects and lists are leaves too. Text is compared with single spaces, 1 equals 1.0, true is not 1.
    """
    if depth < MAX_DEPTH and isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{key}", depth + 1)
    elif depth < MAX_DEPTH and isinstance(value, (list, tuple)) and value:
        for inner in value:
            yield from leaves(inner, f"{path}[]", depth + 1)
    else:
        yield path, _leaf(value)


def _leaf(value: Any) -> str:
    if isinstance(value, str):
        return f'"{" ".join(value.split())}'
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return repr(value)


def field_f1(predicted: Any, gold: Any) -> float:
    """F1 of the leaves of two decoded JSON values, 0..1."""
    ours, theirs = Counter(leaves(predicted)), Counter(leaves(gold))
    return 2 * (ours & theirs).total() / (ours.total() + theirs.total())


def _gold_json(columns: Columns) -> Any:
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


def _schema(columns: Columns) -> Any:
    schema = columns.get("schema")
    if isinstance(schema, str):
        try:
            schema = parse_json(schema)
        except ValueError:
            raise Unscorable("schema is not JSON") from None
    schema = True if schema is None else schema
    check_schema(schema)
    return schema


def _gold_json_text(columns: Columns, **_: Any) -> str:
    gold = _gold_json(columns)
    if gold is None:
        raise Unscorable("a schema alone has no gold answer")
    return f"```json\n{as_text(gold) if not isinstance(gold, str) else json.dumps(gold)}\n```"


@reward(gold=GOLD, reads=("schema",), gold_text=_gold_json_text)
def json_schema(completion: str, columns: Columns) -> float:
    """Information extracted as JSON, 0..1: valid JSON, valid by the schema, and the F1 of its fields.

    An answer that is not strict JSON (in a fence or bare), or that the row's schema rejects, is 0. Else the
    score is the F1 of the leaves against those of the gold, or 1 if the row has only a schema. The order of
    list items does not matter.

    Gold:
        ``solution`` (or ``answer``): JSON or a decoded value. ``schema``: a JSON Schema using type, enum,
        const, properties, required, additionalProperties, items, anyOf, allOf and the numeric limits.

    None:
        Neither gold nor schema, a gold that is not JSON or fails the schema, or a schema with other keywords.

    Rises with:
        Right fields; falls with surplus ones.

    Gaming:
        - Surplus fields: lower precision (test_surplus_fields_lower_the_score).
        - NaN, infinities, nesting without end: not JSON (test_nan_is_not_json).

    Frame:
        None.

    Source:
        JSON Schema 2020-12 (a part of it); micro F1 over key-value pairs, as in form understanding.
    """
    schema, gold = _schema(columns), _gold_json(columns)
    if gold is not None and not is_valid(gold, schema):
        raise Unscorable("gold fails the schema")
    try:
        predicted = parse_json(last_fenced(extract_answer(completion) or ""))
    except ValueError:
        return 0.0
    if not is_valid(predicted, schema):
        return 0.0
    return 1.0 if gold is None else field_f1(predicted, gold)
