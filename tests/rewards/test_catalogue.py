"""Parameters beside the name of a reward, and in direct calls."""

import sys
from itertools import pairwise

import pytest

import swift_grpo_ext
from swift_grpo_ext.errors import RewardError, SettingsError
from swift_grpo_ext.rewards.catalogue import get_reward, split_form
from swift_grpo_ext.rewards.runtime.of_catalogue import OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import RewardTable


def test_names_with_parameters():
    assert split_form("ext_iou:frame=norm1000,order=yxyx") == (
        "ext_iou",
        {"frame": "norm1000", "order": "yxyx"},
    )
    assert split_form("ext_click:radius=0.1") == ("ext_click", {"radius": 0.1})
    assert split_form("ext_format") == ("ext_format", {})
    assert split_form("of_mine:1") == ("of_mine:1", {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ext_iou:frame=norm", r"'norm1', .* \(got 'norm'\)"),
        ("ext_iou:fram=norm1", "did you mean 'frame'"),
        ("ext_iou:norm1000", "unknown parameter .*'norm1000'"),
        ("ext_click:radius=2", "less than or equal to 1"),
        ("ext_format:frame=norm1", "unknown parameter"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused_with_the_nearest(text, told):
    with pytest.raises(SettingsError, match=told):
        split_form(text)


def test_an_unknown_reward_is_refused():
    with pytest.raises(RewardError, match="did you mean 'ext_iou'"):
        split_form("ext_iu:frame=norm1")


def test_direct_calls_are_checked():
    with pytest.raises(SettingsError, match=r"'norm1', .* \(got 'norm'\)"):
        get_reward("ext_iou")("[1, 2, 3, 4]", {"solution": [1, 2, 3, 4]}, frame="norm")
    with pytest.raises(SettingsError, match="did you mean 'frame'"):
        get_reward("ext_iou")("[1, 2, 3, 4]", {"solution": [1, 2, 3, 4]}, frames="norm1")


def test_a_batch_is_refused_with_what_to_do():
    row = {"solution": ["A", "B"]}
    with pytest.raises(RewardError, match="a batch of 2 completions"):
        get_reward("ext_choice")(["A", "B"], row)
    assert get_reward("ext_choice")([{"role": "assistant", "content": "A"}], {"solution": "A"}) == 1.0


def test_a_score_is_four_files_and_twelve_calls_between_them():
    """The way of a completion, which who asks for the reason of a score walks."""
    count, row, files = get_reward("ext_count"), {"solution": 4}, []
    assert count("<answer>4</answer>", row) == 1.0

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(swift_grpo_ext.__path__[0]):
            files.append(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        count("<answer>4</answer>", row)
    finally:
        sys.setprofile(before)
    assert len(set(files)) <= 4
    assert sum(one != other for one, other in pairwise(files)) <= 12


def test_the_frame_of_the_models_family_is_the_default_of_a_run():
    row = {
        "solution": [[64, 48, 320, 240]],
        "image_sizes": [[{"original": [640, 480], "resized": [640, 480]}]],
    }
    batch = ["[100, 100, 500, 500]"]
    iou = get_reward("ext_iou")

    def made():
        return OfCatalogue(iou, table=RewardTable(), given={"gold_frame": "pixel_original"})

    assert made().in_frame("norm1000")(batch, **row) == [pytest.approx(1.0)]
    assert made().in_frame(None)(batch, **row) != [pytest.approx(1.0)]
    told = OfCatalogue(iou, table=RewardTable(), given={"frame": "norm1"}).in_frame("norm1000")
    assert told.parameters["frame"] == "norm1"
