"""Golds as data sets hold them: read as they are meant, or unscored with a reason; never another thing."""

import json

import pytest

from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.gold.columns import gold_completion

SIZES = [{"original": [640, 480], "resized": [640, 480]}, {"original": [100, 50], "resized": [200, 100]}]
CORNERS = "[10, 20, 110, 220]"
IOU, F1, POINT = map(get_reward, ("ext_iou", "ext_detection_f1", "ext_point_in_box"))


def of(gold, **columns):
    return {"solution": gold, "image_sizes": SIZES, **columns}


@pytest.mark.parametrize(
    ("row", "parameters"),
    [
        (of({"bbox": [10, 20, 100, 200]}), {"gold_order": "xywh"}),
        (of({"bbox": [10, 20, 100, 200], "iscrowd": 0, "category_id": 3}), {"gold_order": "xywh"}),
        ({"bbox": [10, 20, 100, 200], "iscrowd": 0, "answer": ["cat"]}, {"gold_order": "xywh"}),
        (of([{"x": 10, "y": 20, "w": 100, "h": 200, "names": ["cat"]}]), {}),
        (of({"x": 10, "y": 20, "width": 100, "height": 200, "phrase": "a cat"}), {}),
        (
            of([{"box_2d": [20, 10, 220, 110], "label": "cat"}]),
            {"order": "yxyx", "gold_frame": "pixel_original"},
        ),
        (of("<ref>cat</ref><box>(10,20),(110,220)</box>"), {}),
        (of({"boxes": [[10, 20, 110, 220]], "labels": ["cat"]}), {}),
        (of({"xmin": 10, "ymin": 20, "xmax": 110, "ymax": 220}), {}),
        (of(json.dumps([[10, 20], [110, 220]])), {}),
        (of("[(10, 20, 110, 220)]"), {}),
        (of(["10", "20", "110", "220"]), {}),
        ({"objects": {"ref": ["cat"], "bbox": [[10, 20, 110, 220]]}, "image_sizes": SIZES}, {}),
        (of([10 / 640, 20 / 480, 110 / 640, 220 / 480]), {"gold_frame": "norm1"}),
    ],
)
def test_one_box_in_the_forms_of_data_sets(row, parameters):
    answer = "[20, 10, 220, 110]" if parameters.get("order") == "yxyx" else CORNERS
    assert IOU(answer, row, **parameters) == pytest.approx(1.0)
    assert IOU(gold_completion(IOU, row, **parameters), row, **parameters) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (of([[10, 20]]), "is no box"),
        (of([{"point_2d": [10, 20]}]), "holds a point"),
        (of([{"point_2d": [10, 20]}, {"bbox_2d": [1, 2, 3, 4]}]), "holds a point"),
        (of([200, 150, 50, 40]), "x, y, width, height"),
        (of({"bbox": [10, 20, 100, 200], "iscrowd": 0}), "COCO"),
        (of({"bbox": [[10, 20, 100, 200]], "category": [3], "area": [9]}), "COCO"),
        ({"bbox": [10, 20, 100, 200], "segmentation": [1.0], "answer": ["cat"]}, "COCO"),
        (of([0.1, 0.2, 0.3, 0.4]), "norm1"),
        (of([100, 200, 900, 950]), "outside"),
        (of([]), "empty_gold=nothing"),
        (of("the cat"), "is no box"),
    ],
)
def test_a_gold_that_is_another_thing_is_unscored(row, reason):
    for reward in (IOU, F1, POINT):
        outcome = reward.outcome(CORNERS, row)
        assert outcome.score is None
        assert reason in outcome.reason


@pytest.mark.parametrize(
    ("gold", "frame"), [([10, 20, 1100, 220], "norm1000"), ([10, 20, 110, 220], "norm1")]
)
def test_a_gold_outside_of_its_frame_is_unscored(gold, frame):
    for reward in (IOU, F1, POINT):
        outcome = reward.outcome(CORNERS, of(gold), frame=frame)
        assert outcome.score is None
        assert "outside" in outcome.reason


def test_class_numbers_are_no_labels():
    row = of({"bbox": [[10, 20, 110, 220]], "category": [3]})
    assert "class number" in F1.outcome(CORNERS, row).reason
    assert IOU(CORNERS, row) == 1.0


def test_objects_of_ms_swift_lie_in_the_image_that_they_name():
    objects = {"ref": ["cat", "dog"], "bbox": [[10, 20, 110, 220], [10, 10, 50, 40]], "image_id": [0, 1]}
    row = {"objects": objects, "image_sizes": SIZES}
    assert IOU("[[10, 20, 110, 220], [20, 20, 100, 80]]", row) == pytest.approx(1.0)
    del objects["image_id"]
    assert IOU("[[10, 20, 110, 220], [10, 10, 50, 40]]", row) == pytest.approx(1.0)


def test_one_ref_names_all_boxes_and_too_few_name_none():
    boxes = [[10, 20, 110, 220], [300, 200, 400, 260], [0, 0, 9, 9]]
    answer = json.dumps([{"bbox_2d": box, "label": "sheep"} for box in boxes])
    for ref, right in ((["sheep"], 1.0), (["goat"], 0.0), (["goat", "sheep"], 1.0)):
        row = {"objects": {"ref": ref, "bbox": boxes}, "image_sizes": SIZES}
        assert F1(answer, row) == right


def test_the_order_of_answers():
    row = of([10, 20, 110, 220])
    gemini = '[{"box_2d": [20, 10, 220, 110], "label": "cat"}]'
    assert IOU(gemini, row, order="yxyx") == 1.0
    assert IOU(gemini, row) < 1.0
    assert POINT('[{"point": [100, 50]}]', row, order="yxyx") == 1.0
    with pytest.raises(SettingsError, match="parameters: frame, gold_frame, order, gold_order"):
        IOU.declared.checked({"order": "xywh"})


@pytest.mark.parametrize("gold", [[], None, "", "[]", {"ref": [], "bbox": []}, "none"])
@pytest.mark.parametrize("reward", [IOU, F1, POINT, get_reward("ext_giou")])
def test_where_there_is_nothing_the_right_answer_says_so(gold, reward):
    row, nothing = of(gold), {"empty_gold": "nothing"}
    for right in ("[]", "```json\n[]\n```", "None", "none.", '{"objects": []}'):
        assert reward(f"<answer>{right}</answer>", row, **nothing) == reward.high
    for wrong in (
        CORNERS,
        "",
        "<answer></answer>",
        "a cat",
        "No, it is at [10, 20, 110, 220]",
        "[0, 0, 0, 0]",
        "?",
    ):
        assert reward(wrong, row, **nothing) == reward.low
    assert reward("[]", row) is None
    assert reward(gold_completion(reward, row, **nothing), row, **nothing) == reward.high


def test_nothing_is_wrong_where_there_is_something():
    assert IOU("There is none.", of([10, 20, 110, 220]), empty_gold="nothing") == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "<loc_10><loc_20><loc_110><loc_220>",
        "<loc0020><loc0010><loc0220><loc0110> cat",
        '{"top_left": {"x": 10, "y": 20}, "bottom_right": {"x": 110, "y": 220}}',
        '{"left": 10, "top": 20, "width": 100, "height": 200}',
        "[10px, 20px, 110px, 220px]",
        "[[010,020,110,220]]",
    ],
)
def test_ways_to_write_a_box(text):
    assert IOU(text, of([10, 20, 110, 220])) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        '[{"object": "cat", "bbox": [10, 20, 110, 220]}, {"category": "dog", "bbox": [300, 200, 400, 260]}]',
        '{"bboxes": [[10, 20, 110, 220], [300, 200, 400, 260]], "labels": ["cat", "dog"]}',
    ],
)
def test_ways_to_name_a_box(text):
    gold = [
        {"bbox_2d": [10, 20, 110, 220], "label": "cat"},
        {"bbox_2d": [300, 200, 400, 260], "label": "dog"},
    ]
    assert F1(text, of(gold)) == 1.0


@pytest.mark.parametrize("key", ["top_left", "bbox", "objects", "label", "x", "other"])
@pytest.mark.parametrize("depth", [20, 300, 900, 3000])
def test_no_depth_is_an_error(key, depth):
    for text in (f'{{"{key}":' * depth + "1" + "}" * depth, f'[{{"{key}":' * depth + "1" + "}]" * depth):
        assert IOU(text, of([10, 20, 110, 220])) == 0.0
