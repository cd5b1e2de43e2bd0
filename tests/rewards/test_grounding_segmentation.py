import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.grounding import segmentation_points

ONE = {"bbox_2d": [100, 100, 300, 300], "point_2d": [200, 200]}
TWO = {"bbox_2d": [400, 400, 600, 500], "point_2d": [500, 450]}
SIZES = [{"original": [1680, 1680], "resized": [840, 840]}]
ROW = {"solution": [ONE], "image_sizes": SIZES}


def scored(objects, row=ROW):
    return segmentation_points(f"<answer>{json.dumps(objects)}</answer>", row)


@pytest.mark.parametrize(
    ("predicted", "thirds"),
    [
        (ONE, 3),
        ({"bbox_2d": [100, 100, 300, 300]}, 2),
        ({"bbox_2d": [100, 100, 300, 300], "point_2d": [300, 200]}, 2),  # far
        ({"bbox_2d": [109, 109, 309, 309], "point_2d": [220, 220]}, 3),  # 9 pixels of box, 20 of point
        ({"bbox_2d": [111, 111, 311, 311], "point_2d": [200, 200]}, 2),  # 11 pixels of box
        ({"bbox_2d": [100, 100, 300, 300], "point_2d": [231, 231]}, 2),  # 31 pixels of point
        ({"bbox_2d": [205, 100, 300, 300], "point_2d": [200, 200]}, 0),  # outside of its own box, IoU .475
        ({"point_2d": [200, 200]}, 0),
    ],
)
def test_thirds(predicted, thirds):
    assert scored([predicted]) == pytest.approx(thirds / 3)


def test_thresholds_do_not_depend_on_the_size_of_the_image():
    doubled = [{"bbox_2d": [218, 218, 618, 618], "point_2d": [440, 440]}]
    assert scored(doubled, {**ROW, "frame": "pixel_original", "gold_frame": "pixel_resized"}) == 1.0


@given(
    st.permutations([ONE, TWO, {"bbox_2d": [0, 0, 50, 50], "point_2d": [25, 25]}]),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_the_total_is_that_of_the_best_pairing(objects, ours, theirs):
    predicted, gold = objects[:ours], objects[3 - theirs :]
    pair = lambda a, b: scored([a], {**ROW, "solution": [b]})  # noqa: E731
    few, many = sorted((predicted, gold), key=len)
    best = max(sum(map(pair, few, order)) for order in permutations(many, len(few)))
    expected = 0.0 if theirs == 1 < ours else best / max(ours, theirs)
    assert scored(predicted, {**ROW, "solution": gold}) == pytest.approx(expected)


def test_spam_of_objects_lowers_the_score():
    assert scored([ONE, TWO]) == scored([ONE] * 10) == 0.0
    assert scored([ONE] * 10, {**ROW, "solution": [ONE, TWO]}) == pytest.approx(0.1)
    assert scored([ONE] * 301) == 0.0


def test_more_objects_than_the_cap_are_no_answer():
    two = {**ROW, "solution": [ONE, TWO]}
    assert scored([ONE] * 300, two) > 0.0
    assert scored([ONE] * 301, two) == 0.0


def test_gold_needs_boxes_points_and_sizes():
    assert segmentation_points.outcome("", {"solution": [{"bbox_2d": [1, 2, 3, 4]}]}).reason.startswith(
        "each gold object"
    )
    assert "image_sizes" in segmentation_points.outcome("", {"solution": [ONE]}).reason
