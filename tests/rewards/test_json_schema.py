import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.contract import Unscorable
from swift_grpo_ext.rewards.json_schema import fault_of, field_f1, json_schema, validator_of

GOLD = {"total": 12.5, "items": [{"name": "tea", "n": 2}, {"name": "milk", "n": 1}]}
SCHEMA = {"type": "object", "required": ["total"], "properties": {"total": {"type": "number", "minimum": 0}}}

values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "a", "ab", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
small = st.integers(0, 3)
schemas = st.recursive(
    st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(
                ["object", "array", "string", "number", "integer", "boolean", "null", ["string", "null"]]
            ),
            "enum": st.lists(values, min_size=1, max_size=3),
            "const": values,
            "minimum": small,
            "maximum": small,
            "exclusiveMinimum": small,
            "exclusiveMaximum": small,
            "minLength": small,
            "maxLength": small,
            "minItems": small,
            "maxItems": small,
            "minProperties": small,
            "maxProperties": small,
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "additionalProperties": inner,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=5,
)


@given(values, schemas)
def test_validity_is_jsonschemas(value, schema):
    fault = fault_of(value, validator_of(schema))
    assert (fault == "") == jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    "schema", [{"items": {"oneOf": []}}, {"type": "decimal"}, 7, {"minimum": "x"}, {"properties": {"a": 3}}]
)
def test_what_is_no_schema_is_refused(schema):
    with pytest.raises(Unscorable):
        validator_of(schema)
    assert json_schema.outcome("{}", {"schema": schema}).score is None


@pytest.mark.parametrize(
    "ref", ["#", "#/$defs/missing", "http://127.0.0.1:9/schema.json", "file:///etc/passwd"]
)
def test_a_reference_that_leads_nowhere_is_refused(ref):
    schema = {"$ref": ref}
    assert json_schema.outcome("{}", {"schema": schema}).score is None


def scored(answer, row):
    return json_schema(f"<answer>{answer}</answer>", row)


def test_fields():
    assert scored(json.dumps(GOLD), {"solution": GOLD}) == 1.0
    assert scored(f"```json\n{json.dumps(GOLD)}\n```", {"solution": json.dumps(GOLD)}) == 1.0
    swapped = {**GOLD, "items": GOLD["items"][::-1]}
    assert scored(json.dumps(swapped), {"solution": GOLD}) == 1.0
    assert scored(json.dumps({"total": 12.5}), {"solution": GOLD}) == pytest.approx(2 / 6)
    assert scored("{}", {"solution": GOLD}) == 0.0
    assert scored('{"total": "12.5"}', {"solution": {"total": 12.5}}) == 0.0
    assert scored('{"total": 12.50, "n": 1.0}', {"solution": {"total": 12.5, "n": 1}}) == 1.0
    assert scored('{"n": true}', {"solution": {"n": 1}}) == 0.0


def test_surplus_fields_lower_the_score():
    scores = [
        scored(json.dumps({**GOLD, **{f"x{i}": i for i in range(n)}}), {"solution": GOLD}) for n in range(5)
    ]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1.0 > scores[1]


@pytest.mark.parametrize(
    "text",
    [
        '{"total": NaN}',
        '{"total": Infinity}',
        "[" * 50_000,
        '{"total": 1',
        "{'total': 1}",
        "total: 1",
        "{}{}",
    ],
)
def test_nan_is_not_json(text):
    assert scored(text, {"solution": {"total": 1}}) == 0.0


def test_references_inside_a_schema():
    item = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    schema = {"$defs": {"item": item}, "type": "array", "items": {"$ref": "#/$defs/item"}}
    assert scored('[{"n": 1}]', {"schema": schema}) == 1.0
    assert scored('[{"n": "1"}]', {"schema": schema}) == 0.0
    assert scored('"ab"', {"schema": {"pattern": "^a"}}) == 1.0
    assert scored('"ba"', {"schema": {"oneOf": [{"pattern": "^a"}, {"type": "null"}]}}) == 0.0


@pytest.mark.parametrize("wrapped", ["<|begin_of_box|>{}<|end_of_box|>", "**{}**", "So:\n```\n{}\n```"])
def test_wrapped_json(wrapped):
    answer = wrapped.replace("{}", '{"total": 1}')
    assert json_schema(answer, {"solution": {"total": 1}}) == 1.0


def test_schema():
    assert scored('{"total": 1}', {"schema": SCHEMA}) == 1.0
    assert scored('{"total": -1}', {"schema": json.dumps(SCHEMA)}) == 0.0
    assert scored('{"total": 1, "x": 2}', {"schema": SCHEMA, "solution": {"total": 1}}) == pytest.approx(
        2 / 3
    )
    assert (
        json_schema.outcome("{}", {"schema": SCHEMA, "solution": {"sum": 1}}).reason
        == "gold fails the schema: 'total' is a required property"
    )


@given(values, values)
def test_field_f1_is_symmetric_and_bounded(one, other):
    assert field_f1(one, one) == 1.0
    assert field_f1(one, other) == pytest.approx(field_f1(other, one))
    assert 0 <= field_f1(one, other) <= 1


def test_fields_of_an_item_stay_together():
    swapped = [{"name": "tea", "n": 1}, {"name": "milk", "n": 2}]
    assert field_f1({"items": swapped}, {"items": GOLD["items"]}) == 0.5
    assert field_f1({"items": GOLD["items"][::-1]}, {"items": GOLD["items"]}) == 1.0
    assert field_f1([[1, 2], [3, 4]], [[3, 4], [2, 1]]) == 1.0
    assert field_f1([[1, 3], [2, 4]], [[3, 4], [2, 1]]) == 0.5


def test_long_lists_and_deep_values_take_no_time():
    rows = [{"name": f"item {number}", "n": number} for number in range(1000)]
    wrong = [{"name": f"item {number}", "n": -1} for number in range(1000)]
    assert field_f1(rows[::-1], rows) == 1.0
    assert field_f1(wrong, rows) == 0.5
    chain = 1
    for _ in range(900):
        chain = [chain]
    assert field_f1(chain, chain) == 1.0


@pytest.mark.parametrize("depth", [30, 300, 600, 900, 3000])
def test_no_depth_is_an_error(depth):
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        assert json_schema.outcome(text, {"solution": {"a": 1}}).score == 0.0
        assert json_schema.outcome(text, {"solution": text}).score in (1.0, None)
