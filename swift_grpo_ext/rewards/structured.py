"""Information extraction into JSON."""

from __future__ import annotations

import json
import re

from swift_grpo_ext.rewards.answer import extract_answer, last_boxed, last_fenced, unwrapped
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold import as_text, gold_value, short_enough, without_array
from swift_grpo_ext.rewards.json_f1 import field_f1
from swift_grpo_ext.rewards.schema import check_schema, is_valid

GOLD = ("solution", "answer")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str) -> object:
    """Decode strict JSON, without NaN and infinity, or raise ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


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
    gold = _gold_json(columns)
    if gold is None:
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

    Gold:
        ``solution`` (or ``answer``): JSON or a decoded value. ``schema``: a JSON Schema, ``$ref`` inside it.

    None:
        Neither gold nor schema, a gold that is not JSON or fails the schema, or a schema that is none.

    Rises with:
        Right fields; falls with surplus ones.

    Gaming:
        - Surplus fields: lower precision (test_surplus_fields_lower_the_score).
        - The right values in the wrong items: fields of an item count together
          (test_fields_of_an_item_stay_together).
        - NaN, infinities, nesting without end: not JSON (test_nan_is_not_json).

    Source:
        JSON Schema, by jsonschema; micro F1 over key-value pairs, as in form understanding.

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
