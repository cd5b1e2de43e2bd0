import contextlib
import io
import itertools
import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from swift_grpo_ext.rewards.detection import (
    COCO_THRESHOLDS,
    RECALL_POINTS,
    average_precisions,
    detection_f1,
    detection_map,
    hits,
    mean_average_precision,
)
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


def coco_map(predicted, gold):
    """COCO's own evaluation of one image, on the exact recall points and thresholds."""
    labels = sorted(gold)
    xywh = lambda box: [box[0], box[1], box[2] - box[0], box[3] - box[1]]  # noqa: E731
    truths = [(label, box) for label in labels for box in gold[label]]
    annotations = [
        {
            "id": i,
            "image_id": 1,
            "category_id": labels.index(label),
            "bbox": xywh(box),
            "iscrowd": 0,
            "area": xywh(box)[2] * xywh(box)[3],
        }
        for i, (label, box) in enumerate(truths, start=1)
    ]
    detections = [
        {"image_id": 1, "category_id": labels.index(label), "bbox": xywh(box), "score": score}
        for label in labels
        for box, score in predicted.get(label, [])
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": 1}],
            "categories": [{"id": i} for i in range(len(labels))],
            "annotations": annotations,
        }
        truth.createIndex()
        if not detections:
            return 0.0
        evaluation = COCOeval(truth, truth.loadRes(detections), "bbox")
        evaluation.params.recThrs = np.array(RECALL_POINTS)
        evaluation.params.iouThrs = np.array(COCO_THRESHOLDS)
        evaluation.params.maxDets = [1, 10, 1000]
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][:, :, :, 0, 2]
    return float(precision[precision > -1].mean())


def check_against_coco(seed):
    generator = random.Random(seed)
    labels = ["cat", "dog", "bird"][: generator.randint(1, 3)]
    gold = {label: random_boxes(generator, generator.randint(1, 6)) for label in labels}
    scores = generator.sample(range(1, 1000), 200)
    predicted = {}
    for label in labels:
        boxes = [jittered(generator, box) for box in gold[label] if generator.random() < 0.8]
        boxes += random_boxes(generator, generator.randint(0, 4))
        predicted[label] = [(box, scores.pop() / 1000) for box in boxes]
    assert mean_average_precision(predicted, gold) == pytest.approx(coco_map(predicted, gold), abs=1e-9), seed


def test_mean_average_precision_is_cocos():
    for seed in range(150):
        check_against_coco(seed)


@pytest.mark.slow
def test_mean_average_precision_is_cocos_on_many_images():
    for seed in range(1000, 6000):
        check_against_coco(seed)


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
    assert hits(predicted, gold, 0.6) == best


def test_f1():
    assert detection_f1(answer((CAT, "cat", 1), (DOG, "dog", 1)), GOLD) == 1.0
    assert detection_f1(answer((DOG, " DOG", 1), (CAT, "Cat", 1)), GOLD) == 1.0
    assert detection_f1(answer((CAT, "cat", 1)), GOLD) == pytest.approx(2 / 3)
    assert detection_f1(answer((CAT, "dog", 1), (DOG, "cat", 1)), GOLD) == 0.0
    near = [CAT[0], CAT[1], CAT[2], CAT[3] - 80]  # IoU 0.6
    assert detection_f1(answer((near, "cat", 1)), {"solution": [CAT]}) == 1.0
    assert detection_f1(answer((near, "cat", 1)), {"solution": [CAT]}, iou_threshold=0.61) == 0.0


@pytest.mark.parametrize("reward", [detection_f1, detection_map])
def test_spam_of_boxes_lowers_the_score(reward):
    honest = answer((CAT, "cat", 0.9), (DOG, "dog", 0.9))
    spam = [([x, 0, x + 9, 9], "cat", 0.01) for x in range(0, 90, 10)]
    scores = [reward(answer((CAT, "cat", 0.9), (DOG, "dog", 0.9), *spam[:n]), GOLD) for n in range(10)]
    assert scores[0] == reward(honest, GOLD) == 1.0
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 10
    assert reward(answer(*[(CAT, "cat", 1), (DOG, "dog", 1)] * 5), GOLD) < 0.5


def test_order_does_not_matter():
    objects = [(CAT, "cat", 1), (DOG, "dog", 1), ([0, 0, 9, 9], "cat", 1), ([50, 50, 90, 99], "dog", 1)]
    assert (
        len({round(detection_map(answer(*order), GOLD), 12) for order in itertools.permutations(objects)})
        == 1
    )
    boxes = [((0, 0, 10, 10), 1.0)] + [((50 + x, 50, 60 + x, 60), 1.0) for x in range(9)]
    for order in (boxes, boxes[::-1]):
        assert average_precisions(order, [(0, 0, 10, 10)], [0.5]) == pytest.approx([0.1])


def test_confidence_above_one_gains_nothing():
    wrong = ([0, 0, 9, 9], "cat", 1)
    honest = detection_map(answer((CAT, "cat", 1), wrong), GOLD)
    for score in (1.5, 100, 1e308, float("inf"), float("nan"), -5):
        assert detection_map(answer((CAT, "cat", score), wrong), GOLD) <= honest


@pytest.mark.parametrize("reward", [detection_f1, detection_map])
def test_unknown_labels_are_false_positives(reward):
    assert reward(answer((CAT, "cat", 1), (DOG, "dog", 1), (CAT, "zebra", 1)), GOLD) < 0.9
    assert reward(answer((CAT, "", 1), (DOG, "", 1)), GOLD) == 0.0


def test_labels_do_not_matter_if_the_gold_has_none():
    assert detection_map(answer((CAT, "zebra", 1)), {"solution": [CAT]}) == 1.0
    assert detection_f1(json.dumps([CAT]), {"solution": [CAT]}) == 1.0
