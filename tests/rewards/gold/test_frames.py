import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.contract import Unscorable
from swift_grpo_ext.rewards.gold.frames import FRAMES, convert, extent, image_aspect
from swift_grpo_ext.rewards.grounding import iou

ROW = {
    "image_sizes": [
        {"original": [640, 480], "resized": [1288, 966]},
        {"original": (100, 50), "resized": (112, 56)},
    ]
}
unit = st.floats(0, 1, allow_nan=False)


@given(st.tuples(unit, unit, unit, unit), st.sampled_from(FRAMES), st.sampled_from(FRAMES), st.integers(0, 1))
def test_there_and_back(values, source, target, image):
    there = convert(values, source, target, ROW, image)
    assert convert(there, target, source, ROW, image) == pytest.approx(values, abs=1e-9)


@given(st.sampled_from(FRAMES), st.sampled_from(FRAMES), st.integers(0, 1))
def test_the_whole_image_stays_the_whole_image(source, target, image):
    corner = extent(source, ROW, image)
    assert convert((0, 0, *corner), source, target, ROW, image) == pytest.approx(
        (0, 0, *extent(target, ROW, image))
    )


def test_values():
    assert convert((320, 240), "pixel_original", "norm1000", ROW) == (500, 500)
    assert convert((320, 240), "pixel_original", "pixel_resized", ROW) == (644, 483)
    assert convert((0.5, 0.5), "norm1", "pixel_resized", ROW, 1) == (56, 28)
    assert image_aspect(ROW, 1) == 2


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"image_sizes": None},
        {"image_sizes": []},
        {"image_sizes": [{"original": [1, 1]}]},
        {"image_sizes": [{"resized": [0, 5]}]},
        {"image_sizes": [{"resized": ["a", None]}]},
    ],
)
def test_a_row_without_its_size_is_unscorable_only_where_pixels_are_needed(row):
    with pytest.raises(Unscorable, match="image_sizes"):
        convert((1, 2), "pixel_resized", "norm1", row)
    assert convert((1, 2), "norm1", "norm1000", row) == (1000, 2000)
    assert convert((1, 2), "pixel_resized", "pixel_resized", row) == (1, 2)
    outcome = iou.outcome("[1, 2, 3, 4]", {"solution": [1, 2, 3, 4], **row}, gold_frame="pixel_original")
    assert outcome.score is None
    assert "image_sizes" in outcome.reason


def test_iou_does_not_depend_on_the_frame():
    gold = (32, 48, 320, 240)
    for frame in FRAMES:
        answer = list(convert((64, 48, 320, 240), "pixel_original", frame, ROW))
        row = {"solution": gold, **ROW}
        score = iou(str(answer), row, gold_frame="pixel_original", frame=frame)
        assert score == pytest.approx(256 / 288)
