import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.contract import Unscorable
from swift_grpo_ext.rewards.gold.regions import Places, gold_regions
from swift_grpo_ext.rewards.reading.boxes import MAX_REGIONS, parse_regions
from swift_grpo_ext.rewards.reading.json_text import json_values
from swift_grpo_ext.rewards.reading.region import Region

BOX = Region(box=(10, 20, 110, 220))


def boxes(text):
    return [region.box for region in parse_regions(text, "box")]


@pytest.mark.parametrize(
    "text",
    [
        "[10, 20, 110, 220]",
        "[[10, 20, 110, 220]]",
        "[10.0,20.0,110.0,220.0]",
        "(10, 20, 110, 220)",
        "10, 20, 110, 220",
        "10 20 110 220",
        "(10,20),(110,220)",
        "<|box_start|>(10,20),(110,220)<|box_end|>",
        "<box>[[10, 20, 110, 220]]</box>",
        "<box>(10,20),(110,220)</box>",
        "[[10, 20], [110, 220]]",
        "The box is [10, 20, 110, 220].",
        "[110, 220, 10, 20]",
        "[10, 220, 110, 20]",
        '{"bbox_2d": [10, 20, 110, 220]}',
        "{'bbox_2d': [10, 20, 110, 220]}",
        '{"bbox": [[10, 20], [110, 220]]}',
        '```json\n[{"bbox_2d": [10, 20, 110, 220]}]\n```',
        '```json\n[{"bbox_2d": [1, 2, 3, 4]}]\n```\nno:\n```json\n[{"bbox_2d": [10, 20, 110, 220]}]\n```',
        '{"objects": [{"box": [10, 20, 110, 220]}]}',
        "（10，20，110，220）",
        "see figure [1]: (10, 20, 110, 220)",
        "bbox = [1e1, 2e1, 1.1e2, 220]",
        '["10", "20", "110", "220"]',
        '{"bbox_2d": "10, 20, 110, 220"}',
        "It spans from x=10 to x=110 and from y=20 to y=220.",
        "x: 10-110, y: 20-220",
    ],
)
def test_ways_to_write_one_box(text):
    assert boxes(text) == [BOX.box]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "[10, 20, 110]",
        "[10, 20, 110, 220, 5]",
        "[true, 1, 2, 3]",
        '{"bbox_2d": "10 20"}',
        "[" * 100_000,
        "()",
    ],
)
def test_texts_without_a_box(text):
    assert boxes(text) == []


def test_several_boxes_in_prose_all_count():
    assert boxes("cat: [1, 2, 3, 4]\ndog: [5, 6, 7, 8]") == [(1, 2, 3, 4), (5, 6, 7, 8)]
    assert boxes("(1,2),(3,4) and (5,6),(7,8)") == [(1, 2, 3, 4), (5, 6, 7, 8)]


def test_labels_confidences_points():
    text = json.dumps(
        [{"bbox_2d": [1, 2, 3, 4], "point_2d": [2, 3], "label": "cat", "score": 0.5}, {"dog": [5, 6, 7, 8]}]
    )
    assert parse_regions(text, "both") == [
        Region((1, 2, 3, 4), (2, 3), "cat", 0.5),
        Region((5, 6, 7, 8), None, "dog"),
    ]
    assert parse_regions("[[1, 2], [3, 4]]", "point") == [Region(point=(1, 2)), Region(point=(3, 4))]
    assert parse_regions('{"x": 1, "y": 2}', "both") == [Region(point=(1, 2))]
    assert parse_regions("(1, 2)", "box") == []
    assert parse_regions("(1, 2)", "both") == [Region(point=(1, 2))]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 400, "1" * 5000])
def test_numbers_that_are_none_never_reach_the_arithmetic(number):
    found = parse_regions(f'[{{"bbox_2d": [{number}, 0, 1, 1], "score": {number}}}]', "box")
    assert found in ([Region(box=(0, 0, 0, 0))], [])


def test_more_objects_than_the_cap_are_no_answer():
    assert len(boxes(str([[1, 2, 3, 4]] * MAX_REGIONS))) == MAX_REGIONS
    assert boxes(str([[1, 2, 3, 4]] * (MAX_REGIONS + 1))) == []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=5)
            | st.dictionaries(
                st.sampled_from(["bbox_2d", "point", "label", "score", "x", "y", "a"]), inner, max_size=4
            )
        ),
    )
)
def test_any_json_is_read(value):
    for kind in ("box", "point", "both"):
        for region in parse_regions(json.dumps(value), kind):
            assert region.box is None or (region.box[0] <= region.box[2] and region.box[1] <= region.box[3])


@pytest.mark.parametrize(
    "text",
    [
        '[{"bbox_2d": [1, 2, 3, 4], "label": "cat"}, {"bbox_2d": [5, 6, 7, 8], "label": "dog"},]',
        '[{"bbox_2d": [1, 2, 3, 4], "label": "cat"}, {"bbox_2d": [5, 6, 7, 8], "label": "dog"}, {"bbox_2d": [9, 1',
        '{"objects": [{"bbox_2d": [1, 2, 3, 4], "label": "cat"}, {"bbox_2d": [5, 6, 7, 8], "label": "dog"}',
        "A [cat] and a dog: [{'bbox_2d': (1, 2, 3, 4), 'label': \"cat\"}, {'bbox_2d': [5, 6, 7, 8], 'label': 'dog'}]",
        "<ref>cat</ref><box>[[1, 2, 3, 4]]</box><ref>dog</ref><box>[[5, 6, 7, 8]]</box>",
        "<|object_ref_start|>cat<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|> and "
        "<|object_ref_start|>dog<|object_ref_end|><|box_start|>(5,6),(7,8)<|box_end|>",
        '[{"label": "cat", "bbox_2d": [[1, 2, 3, 4]]}, {"label": "dog", "bbox": null, "boxes": [[5, 6, 7, 8]]}]',
        '{"cat": [[1, 2, 3, 4]], "dog": [5, 6, 7, 8]}',
    ],
)
def test_labels_stay_with_their_boxes(text):
    assert parse_regions(text, "box") == [
        Region((1, 2, 3, 4), label="cat"),
        Region((5, 6, 7, 8), label="dog"),
    ]


def test_a_key_that_holds_boxes_is_no_label():
    gold = gold_regions({"solution": {"boxes": [[1, 2, 3, 4]]}}, ("solution",), "box", Places("norm1"))[0]
    assert gold == [Region((1, 2, 3, 4))]


@pytest.mark.parametrize(
    "text",
    [
        "[(1, 2), (3, 4), (5, 6)]",
        "[(1,2),(3,4),(5,6)]",
        "(1, 2), (3, 4), (5, 6)",
        "1. (1, 2)\n2. (3, 4)\n3. (5, 6)",
        "<points x1='1' y1='2' x2='3.0' y2='4' x3='5' y3='6' alt='cats'>cats</points>",
        '<point x="1" y="2" alt="a">a</point> <point x="3" y="4" alt="b">b</point><point x="5" y="6">c</point>',
        "x: 1, y: 2; x: 3, y: 4; x: 5, y: 6",
        "<point>1 2</point><point>3 4</point><point>5 6</point>",
    ],
)
def test_ways_to_write_several_points(text):
    for kind in ("point", "both"):
        assert [region.point for region in parse_regions(text, kind)] == [(1, 2), (3, 4), (5, 6)]


def test_two_pairs_are_a_box_as_the_model_writes_it_and_else_two_points():
    assert parse_regions("<|box_start|>(1,2),(3,4)<|box_end|>", "both") == [Region((1, 2, 3, 4))]
    assert parse_regions("(1, 2), (3, 4)", "both") == [Region(point=(1, 2)), Region(point=(3, 4))]
    assert parse_regions("(1, 2), (3, 4)", "box") == [Region((1, 2, 3, 4))]


def test_json_values_stop_at_the_first_fault():
    assert json_values('[1] and {"a": 2}') == [[1], {"a": 2}]
    assert json_values("[1] and [2") is None
    assert json_values("no brackets") == []


def test_gold_knows_the_frame_of_ms_swifts_objects():
    real = {"objects": {"ref": ["a"], "bbox": [[1, 2, 3, 4]]}}
    assert gold_regions(real, ("objects",), "box", Places("norm1000")) == (
        [Region((1, 2, 3, 4), label="a")],
        "pixel_original",
    )
    unit = {"objects": {"ref": ["a", "b"], "bbox": [[0.1, 0.2, 0.3, 0.4]], "bbox_type": "norm1"}}
    assert gold_regions(unit, ("objects",), "box", Places("norm1000")) == (
        [Region((0.1, 0.2, 0.3, 0.4))],
        "norm1",
    )


@pytest.mark.parametrize(
    "gold", [[1, 2, 1, 4], [float("nan"), 2, 3, 4], "no box", [[0, 0, 1, 1]] * 301, {"bbox": []}, 7]
)
def test_unusable_gold(gold):
    with pytest.raises(Unscorable):
        gold_regions({"solution": gold}, ("solution",), "box", Places("norm1"))
