import random

import pytest
import shapely
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.ops import box_iou as torch_iou
from torchvision.ops import generalized_box_iou as torch_giou

from swift_grpo_ext.rewards.gold.geometry import best_assignment, box_giou, box_iou, matched_mean
from swift_grpo_ext.rewards.grounding import giou, iou

BOX = [10, 20, 110, 220]
coordinate = st.one_of(st.integers(-50, 1000), st.floats(0, 1, width=32))


@st.composite
def boxes(draw):
    x, y, w, h = (draw(coordinate) for _ in range(4))
    return (x, y, x + abs(w) + 0.25, y + abs(h) + 0.25)


def answer(*found):
    return f"<think>[10, 20, 110, 220]</think><answer>{[list(box) for box in found]}</answer>"


@given(boxes(), boxes())
def test_iou_is_shapelys(a, b):
    one, other = shapely.box(*a), shapely.box(*b)
    expected = one.intersection(other).area / one.union(other).area
    assert box_iou(a, b) == pytest.approx(expected, abs=1e-9)
    assert iou(answer(a), {"solution": list(b)}) == pytest.approx(expected, abs=1e-9)


@given(st.lists(boxes(), min_size=1, max_size=8), st.lists(boxes(), min_size=1, max_size=8))
def test_iou_and_giou_are_torchvisions(ours, theirs):
    a, b = torch.tensor(ours, dtype=torch.float64), torch.tensor(theirs, dtype=torch.float64)
    assert [[box_iou(x, y) for y in theirs] for x in ours] == pytest.approx(torch_iou(a, b).numpy(), abs=1e-9)
    assert [[box_giou(x, y) for y in theirs] for x in ours] == pytest.approx(
        torch_giou(a, b).numpy(), abs=1e-9
    )


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=4))
def test_the_assignment_is_the_best_of_all(gains):
    from itertools import permutations

    wide = gains if len(gains) <= 3 else list(zip(*gains, strict=True))
    best = max(
        sum(row[c] for row, c in zip(wide, columns, strict=False))
        for columns in permutations(range(len(wide[0])), len(wide))
    )
    assert sum(gains[row][column] for row, column in best_assignment(gains)) == pytest.approx(best)


@pytest.mark.slow
def test_iou_is_torchvisions_on_many_boxes():
    generator = random.Random(0)

    def some():
        x, y = generator.uniform(0, 900), generator.uniform(0, 900)
        return (x, y, x + generator.uniform(0.01, 400), y + generator.uniform(0.01, 400))

    for _ in range(200):
        ours, theirs = [some() for _ in range(40)], [some() for _ in range(40)]
        a, b = torch.tensor(ours, dtype=torch.float64), torch.tensor(theirs, dtype=torch.float64)
        assert [[box_iou(x, y) for y in theirs] for x in ours] == pytest.approx(
            torch_iou(a, b).numpy(), abs=1e-9
        )
        assert [[box_giou(x, y) for y in theirs] for x in ours] == pytest.approx(
            torch_giou(a, b).numpy(), abs=1e-9
        )


@pytest.mark.parametrize(
    ("box", "score"),
    [
        (BOX, 1.0),
        ([110, 220, 10, 20], 1.0),  # swapped corners
        ([10, 20, 60, 220], 0.5),
        ([10, 20, 10, 220], 0.0),  # a line
        ([50, 50, 50, 50], 0.0),  # a point
        ([110, 20, 210, 220], 0.0),  # touches
    ],
)
def test_single_boxes(box, score):
    assert iou(answer(box), {"solution": BOX}) == pytest.approx(score)


def test_small_and_normalised_boxes_come_out_right():
    assert iou(answer([3, 3, 4, 4]), {"solution": [3, 3, 4, 4]}) == 1.0
    assert iou(answer([0.1, 0.1, 0.2, 0.2]), {"solution": [0.1, 0.1, 0.2, 0.2], "frame": "norm1"}) == 1.0
    assert iou(answer([0.1, 0.1, 0.2, 0.2]), {"solution": [0.1, 0.1, 0.3, 0.2]}) == pytest.approx(0.5)


def test_giou_tells_near_from_far():
    scores = [giou(answer([x, 20, x + 100, 220]), {"solution": BOX}) for x in (10, 60, 110, 300, 5000)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1.0
    assert len(set(scores)) == 5
    assert giou("nothing", {"solution": BOX}) == -1.0


@given(st.lists(boxes(), min_size=1, max_size=6))
def test_spam_of_boxes_lowers_the_score(spam):
    row = {"solution": BOX}
    for reward in (iou, giou):
        honest = reward(answer(BOX), row)
        assert reward(answer(BOX, *spam), row) < honest
        assert reward(answer(*spam, BOX), row) == pytest.approx(reward(answer(BOX, *spam), row))


def test_a_grid_of_boxes_for_one_target_is_no_answer():
    grid = [[x, y, x + 100, y + 100] for x in range(0, 1000, 100) for y in range(0, 1000, 100)]
    outcome = iou.outcome(answer(*grid), {"solution": [0, 0, 100, 100]})
    assert outcome.score == 0.0
    assert outcome.reason.startswith("unread: 100 places for one target")


@pytest.mark.parametrize("times", [2, 3, 50])
def test_a_repeated_box_lowers_the_score(times):
    assert iou(answer(*[BOX] * times), {"solution": BOX}) == 0.0
    assert giou(answer(*[BOX] * times), {"solution": BOX}) == -1.0
    two = {"solution": [BOX, [300, 300, 400, 400]]}
    assert iou(answer(*[BOX] * times), two) == pytest.approx(1 / times)


def test_boxes_in_the_thinking_part_are_not_read():
    row = {"solution": BOX}
    assert iou(f"<think>{BOX}</think>", row) == 0.0
    assert iou(f"<think>{BOX}", row) == 0.0
    assert iou(f"<answer>{BOX}</answer><answer>[0, 0, 1, 1]</answer>", row) == 0.0


def test_a_box_over_the_whole_image():
    assert iou(answer([0, 0, 1000, 1000]), {"solution": [0, 0, 100, 100]}) == pytest.approx(0.01)


def test_leaving_gold_boxes_out_costs_their_share():
    two = [BOX, [300, 300, 400, 400]]
    assert iou(answer(BOX), {"solution": two}) == pytest.approx(0.5)
    assert iou(answer(*reversed(two)), {"solution": two}) == pytest.approx(1.0)


@given(st.lists(boxes(), max_size=5), st.lists(boxes(), min_size=1, max_size=5))
def test_matched_mean_is_symmetric(ours, theirs):
    if ours:
        assert matched_mean(ours, theirs, box_iou) == pytest.approx(matched_mean(theirs, ours, box_iou))
