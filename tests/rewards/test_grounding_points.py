import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.grounding import point_in_box

BOX = [10, 20, 110, 220]
number = st.integers(0, 250)


@given(number, number)
def test_inside_is_shapelys(x, y):
    inside = shapely.box(*BOX).contains(shapely.Point(x, y))  # a border point is not contained
    assert point_in_box(f"<answer>({x}, {y})</answer>", {"solution": BOX}) == float(inside)


@pytest.mark.parametrize(
    "text",
    [
        "(50, 60)",
        "[50, 60]",
        '{"point_2d": [50, 60]}',
        '```json\n[{"point_2d": [50, 60], "label": "x"}]\n```',
        "[40, 50, 60, 70]",
    ],
)
def test_ways_to_point(text):
    assert point_in_box(f"<answer>{text}</answer>", {"solution": BOX}) == 1.0


@pytest.mark.parametrize("point", [(10, 100), (110, 100), (50, 20), (50, 220), (10, 20)])
def test_the_edge_is_outside(point):
    assert point_in_box(f"<answer>{list(point)}</answer>", {"solution": BOX}) == 0.0


def test_spam_of_points_lowers_the_score():
    grid = [[x, y] for x in range(5, 200, 40) for y in range(5, 250, 40)]
    scores = [point_in_box(f"<answer>{[[50, 60], *grid[:n]]}</answer>", {"solution": BOX}) for n in range(10)]
    assert scores == [1.0] + [0.0] * 9
    two = {"solution": [BOX, [300, 300, 400, 400]]}
    scores = [point_in_box(f"<answer>{[[50, 60], *grid[:n]]}</answer>", two) for n in range(1, 10)]
    assert scores == pytest.approx([1 / (n + 1) for n in range(1, 10)])


def test_several_targets_need_several_points():
    two = [BOX, [300, 300, 400, 400]]
    assert point_in_box("<answer>[[350, 350], [50, 60]]</answer>", {"solution": two}) == 1.0
    assert point_in_box("<answer>[[350, 350]]</answer>", {"solution": two}) == 0.5
    assert point_in_box("<answer>[[350, 350], [351, 351]]</answer>", {"solution": two}) == 0.5
