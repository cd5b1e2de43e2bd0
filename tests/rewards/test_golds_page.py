"""Rows as published data sets have them, and the lines of docs/golds.md about them."""

import pytest

from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.gold.columns import gold_completion, gold_from

SIZES = {"image_sizes": [{"original": [640, 480], "resized": [640, 480]}]}
PIXELS = {"gold_frame": "pixel_original"}
VQA = [{"answer": "net", "answer_confidence": "yes", "answer_id": n} for n in range(9)] + [
    {"answer": "netting"}
]

READ = [
    ("ext_iou", {"bbox": [100.0, 50.0, 200.0, 100.0], "iscrowd": 0, "segmentation": [1.0], "answer": ["cat"]},
     {"gold_order": "xywh", **PIXELS}, "[100, 50, 300, 150]"),
    ("ext_iou", {"bbox": [100, 50, 300, 150], "answer": ["cat"]}, PIXELS, '{"bbox_2d": [100, 50, 300, 150]}'),
    ("ext_iou", {"objects": {"bbox": [[100, 50, 200, 100]], "category": [17], "area": [9]}},
     {"gold_order": "xywh", **PIXELS}, "[100, 50, 300, 150]"),
    ("ext_iou", {"objects": {"bbox": [[100, 50, 300, 150]], "category": [17], "area": [9]}},
     {"gold_order": "xyxy", **PIXELS}, "[100, 50, 300, 150]"),
    ("ext_detection_f1", {"objects": [{"x": 100, "y": 50, "w": 200, "h": 100, "names": ["tree"], "object_id": 7}]},
     PIXELS, '[{"bbox_2d": [100, 50, 300, 150], "label": "tree"}]'),
    ("ext_iou", {"solution": {"x": 100, "y": 50, "width": 200, "height": 100, "phrase": "a tree"}}, PIXELS,
     "[100, 50, 300, 150]"),
    ("ext_point_in_box", {"bbox": [0.25, 0.25, 0.5, 0.5], "instruction": "open"}, {"gold_frame": "norm1"}, "(240, 180)"),
    ("ext_point_in_box", {"bbox": [100, 50, 200, 100]}, {"gold_order": "xywh", **PIXELS}, "(290, 140)"),
    ("ext_iou", {"solution": [{"box_2d": [100, 50, 300, 150], "label": "cat"}]},
     {"order": "yxyx", "frame": "norm1000"}, '[{"box_2d": [100, 50, 300, 150], "label": "cat"}]'),
    ("ext_click", {"solution": {"action_type": "open_app", "app_name": "Chrome"}}, {}, "open_app(app_name='Chrome')"),
    ("ext_click", {"solution": {"op": "SELECT", "value": "Red", "bbox": [100, 50, 300, 150]}}, {},
     '{"action": "select", "coordinate": [200, 100], "value": "Red"}'),
    ("ext_click", {"gt_action": "click", "gt_bbox": [100, 50, 300, 150], "gt_input_text": "no input text"}, {},
     "[{'action': 'click', 'point': [200, 100], 'input_text': 'no input text'}]"),
    ("ext_iou", {"solution": []}, {"empty_gold": "nothing"}, "[]"),
    ("ext_choice", {"answer": "B", "options": "['a cat', 'a dog']"}, {}, "B"),
    ("ext_anls", {"answer": "['$6', '6 dollars']"}, {}, "6 dollars"),
    ("ext_text_f1", {"answer": "['$6', '6 dollars']"}, {}, "6 dollars"),
    ("ext_numeric", {"answer": "1.2"}, {}, "1.2"),
    ("ext_anls", {"answer": VQA}, {}, "netting"),
    ("ext_text_f1", {"answer": VQA}, {}, "net"),
    ("ext_anls", {"answer": ["first", "1st"]}, {}, "1st"),
    ("ext_count", {"answer": "3"}, {}, "3"),
    ("ext_yes_no", {"answer": "yes"}, {}, "yes"),
    ("ext_temporal_iou", {"timestamps": [[0.83, 19.86]]}, {}, "0.83 to 19.86 seconds"),
]  # fmt: skip
REFUSED = [
    ("ext_iou", {"bbox": [100, 50, 200, 100], "iscrowd": 0, "segmentation": [1.0]}, {}, "COCO"),
    ("ext_detection_f1", {"objects": {"bbox": [[100, 50, 200, 100]], "category": [17], "area": [9]}},
     {"gold_order": "xywh"}, "class number"),
    ("ext_point_in_box", {"bbox": [0.25, 0.25, 0.5, 0.5]}, {}, "norm1"),
    ("ext_click", {"solution": {"action_type": 4, "touch_point": [0.5, 0.2]}}, {}, "no action"),
    ("ext_click", {"operation": '{"original_op": "CLICK", "value": "", "op": "CLICK"}'}, {}, "no place"),
    ("ext_count", {"answer": "yes"}, {}, "gold"),
    ("ext_yes_no", {"answer": "3"}, {}, "gold"),
    ("ext_iou", {"solution": None}, {}, "empty_gold=nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "row", "parameters", "answer"), READ)
def test_a_gold_is_read_as_it_is_meant(name, row, parameters, answer):
    reward, row = get_reward(name), {**row, **SIZES}
    assert reward(answer, row, **parameters) == pytest.approx(reward.high)
    assert reward(gold_completion(reward, row, **parameters), row, **parameters) == pytest.approx(reward.high)


@pytest.mark.parametrize(("name", "row", "parameters", "reason"), REFUSED)
def test_a_gold_that_could_be_another_is_unscored(name, row, parameters, reason):
    outcome = get_reward(name).outcome("[100, 50, 300, 150]", {**row, **SIZES}, **parameters)
    assert outcome.score is None
    assert reason in outcome.reason


def test_golds_of_a_column_that_the_table_names():
    numeric, row = get_reward("ext_numeric"), {"label": ["14"]}
    assert numeric("14", gold_from(row, numeric.gold, "label")) == 1.0
    anls, row = get_reward("ext_anls"), {"answers": VQA, "answer": "no"}
    assert anls("netting", gold_from(row, anls.gold, "answers")) == 1.0
