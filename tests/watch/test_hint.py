"""Boxes in another frame than the gold."""

from types import SimpleNamespace

import pytest
from PIL import Image

from swift_grpo_ext.watch.hint import frame_hint, hint_of

SIZES = [(224, 168)] * 3
PIXELS = [(10, 20, 200, 150), (5, 5, 100, 100), (0, 0, 223, 167)]
THOUSANDTHS = [(44, 119, 892, 892), (22, 29, 446, 595), (0, 0, 995, 994)]
FRACTIONS = [(0.04, 0.1, 0.9, 0.9), (0.1, 0.1, 0.4, 0.6), (0, 0, 1, 1)]


@pytest.mark.parametrize(
    ("predicted", "gold", "text"),
    [
        (THOUSANDTHS, PIXELS, "predicted boxes look like numbers from 0 to 1000 while the gold is in pixels"),
        (FRACTIONS, PIXELS, "predicted boxes look like fractions from 0 to 1 while the gold is in pixels"),
        (PIXELS, FRACTIONS, "look like pixels of the image while the gold is in fractions"),
        (PIXELS, PIXELS, ""),
        (FRACTIONS, FRACTIONS, ""),
        (THOUSANDTHS[:2], PIXELS, ""),
        (THOUSANDTHS, [], ""),
    ],
)
def test_what_the_numbers_leave_no_doubt_about(predicted, gold, text):
    found = frame_hint(predicted, gold, SIZES)
    assert text in found
    assert bool(text) == bool(found)


def test_a_large_image_holds_thousandths_too():
    assert frame_hint(THOUSANDTHS, PIXELS, [(4000, 3000)] * 3) == ""
    assert "numbers far above 1" in frame_hint(FRACTIONS, THOUSANDTHS, [(4000, 3000)] * 3)


def sample(completion, gold, image):
    return SimpleNamespace(
        messages=[{"role": "assistant", "content": completion}],
        extra={"solution": gold},
        objects={},
        images=[image],
    )


def test_boxes_are_read_from_completions_gold_and_image_files(tmp_path):
    image = tmp_path / "a.png"
    Image.new("RGB", SIZES[0]).save(image)
    samples = [
        sample(f'[{{"bbox_2d": {list(theirs)}, "label": "cat"}}]', str(list(ours)), {"path": str(image)})
        for theirs, ours in zip(THOUSANDTHS, PIXELS, strict=True)
    ]
    assert "numbers from 0 to 1000 while the gold is in pixels" in hint_of(samples)
    assert hint_of([sample("a cat", "7", {"path": "missing.png"})]) == ""
    assert hint_of([]) == ""
