"""Boxes and points of answers and gold as fractions of the image, in whatever frame each is written."""

import json

import pytest

from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.gold.overlay import located

SIZES = [{"original": [200, 100], "resized": [400, 200]}]
ROW = {"solution": "[50, 20, 150, 60]", "image_sizes": SIZES}
IOU = get_reward("ext_iou")
BOXES = {
    "pixel_resized": [100, 40, 300, 120],
    "pixel_original": [50, 20, 150, 60],
    "norm1": [0.25, 0.2, 0.75, 0.6],
    "norm1000": [250, 200, 750, 600],
}


def places(found, which):
    return [place["at"] for place in found[which]]


@pytest.mark.parametrize("frame", BOXES)
def test_gold_and_answer_meet_from_every_frame(frame):
    answer = json.dumps([{"bbox_2d": BOXES[frame], "label": "cat"}])
    found = located(answer, ROW, IOU, {"frame": frame, "gold_frame": "pixel_original"})
    assert places(found, "gold") == [pytest.approx([0.25, 0.2, 0.75, 0.6])]
    assert places(found, "predicted") == places(found, "gold")
    assert found["predicted"][0]["label"] == "cat"
    assert found["image"] == 0


def test_the_column_objects_knows_its_frame_and_labels():
    objects = {"ref": ["cat"], "bbox": [[50, 20, 150, 60]], "bbox_type": "real"}
    found = located("none", {"objects": objects, "image_sizes": SIZES}, IOU, {})
    assert found["gold"] == [{"at": [0.25, 0.2, 0.75, 0.6], "label": "cat"}]
    assert found["predicted"] == []


def test_points_are_places_too():
    reward = get_reward("ext_point_in_box")
    found = located('{"point_2d": [200, 100]}', ROW, reward, {"gold_frame": "pixel_original"})
    assert places(found, "predicted") == [[0.5, 0.5]]


def test_the_frame_of_the_gold_may_be_declared():
    found = located("[100, 40, 300, 120]", ROW, IOU, {"gold_frame": "pixel_resized"})
    assert places(found, "gold") == [pytest.approx([0.125, 0.1, 0.375, 0.3])]


@pytest.mark.parametrize(
    "row",
    [{}, {"solution": "7"}, {"solution": "[1, 2, 3, 4]"}, {"solution": "[1, 2, 3, 4]", "image_sizes": "?"}],
)
def test_what_cannot_be_placed_is_left_out(row):
    assert located("[1, 2, 3, 4]", row, IOU, {"gold_frame": "pixel_original"}) is None


def test_a_point_is_drawn_as_one():
    found = located("(50, 40)", ROW, get_reward("ext_point_in_box"), {"frame": "pixel_original"})
    assert places(found, "predicted") == [[0.25, 0.4]]
    assert places(found, "gold") == [pytest.approx([0.25, 0.2, 0.75, 0.6])]
