import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.detection import detection_f1, hits
from swift_grpo_ext.rewards.gold.geometry import box_iou

CAT, DOG = [10, 20, 110, 220], [300, 200, 400, 260]
GOLD = {"solution": [{"bbox_2d": CAT, "label": "cat"}, {"bbox_2d": DOG, "label": "dog"}]}


def answer(*objects):
    return json.dumps([{"bbox_2d": box, "label": label, "score": score} for box, label, score in objects])


def random_boxes(generator, count):
    boxes = []
    for _ in range(count):
        x, y = generator.randint(0, 60), generator.randint(0, 60)
        boxes.append((x, y, x + generator.randint(5, 40), y + generator.randint(5, 40)))
    return boxes


def jittered(generator, box):
    left, top, right, bottom = (value + generator.choice([-2, -1, 0, 0, 1, 2]) for value in box)
    return (left, top, max(right, left + 1), max(bottom, top + 1))


@given(st.integers(0, 10_000))
def test_hits_are_the_most_possible(seed):
    generator = random.Random(seed)
    gold = random_boxes(generator, generator.randint(1, 4))
    predicted = [jittered(generator, generator.choice(gold)) for _ in range(generator.randint(1, 4))]
    few, many = sorted((predicted, gold), key=len)
    best = max(
        sum(box_iou(a, b) >= 0.6 for a, b in zip(few, order, strict=False))
        for order in itertools.permutations(many, len(few))
    )
    assert hits([("cat", box) for box in predicted], [("cat", box) for box in gold], 0.6) == best
    assert hits([("cat", box) for box in predicted], [("dog", box) for box in gold], 0.6) == 0


def test_f1():
    assert detection_f1(answer((CAT, "cat", 1), (DOG, "dog", 1)), GOLD) == 1.0
    assert detection_f1(answer((DOG, " DOG", 1), (CAT, "Cat", 1)), GOLD) == 1.0
    assert detection_f1(answer((CAT, "cat", 1)), GOLD) == pytest.approx(2 / 3)
    assert detection_f1(answer((CAT, "dog", 1), (DOG, "cat", 1)), GOLD) == 0.0
    near = [CAT[0], CAT[1], CAT[2], CAT[3] - 80]  # IoU 0.6
    assert detection_f1(answer((near, "cat", 1)), {"solution": [CAT]}) == 1.0
    assert detection_f1(answer((near, "cat", 1)), {"solution": [CAT]}, iou_threshold=0.61) == 0.0


@pytest.mark.parametrize("reward", [detection_f1])
def test_spam_of_boxes_lowers_the_score(reward):
    honest = answer((CAT, "cat", 0.9), (DOG, "dog", 0.9))
    spam = [([x, 0, x + 9, 9], "cat", 0.01) for x in range(0, 90, 10)]
    scores = [reward(answer((CAT, "cat", 0.9), (DOG, "dog", 0.9), *spam[:n]), GOLD) for n in range(10)]
    assert scores[0] == reward(honest, GOLD) == 1.0
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 10
    assert reward(answer(*[(CAT, "cat", 1), (DOG, "dog", 1)] * 5), GOLD) < 0.5


@pytest.mark.parametrize("reward", [detection_f1])
def test_unknown_labels_are_false_positives(reward):
    assert reward(answer((CAT, "cat", 1), (DOG, "dog", 1), (CAT, "zebra", 1)), GOLD) < 0.9
    assert reward(answer((CAT, "", 1), (DOG, "", 1)), GOLD) == 0.0


def test_labels_do_not_matter_if_the_gold_has_none():
    assert detection_f1(answer((CAT, "zebra", 1)), {"solution": [CAT]}) == 1.0
    assert detection_f1(json.dumps([CAT]), {"solution": [CAT]}) == 1.0
