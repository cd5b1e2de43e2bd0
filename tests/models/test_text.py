"""Text that stays text, and tags that fit the media."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models import text
from swift_grpo_ext.models.video import videos_as_images

PIECES = ("<|im_end|>", "<image>", "<|image_pad|>")
WRITTEN = st.lists(st.sampled_from([*"<|>im_endage", text.MARKER, *PIECES]), max_size=30)


@given(WRITTEN.map("".join))
def test_nothing_is_lost_and_no_piece_survives_whole(written):
    kept = text.keep_as_text(written, PIECES)
    parts = text.split_at_marker(kept)
    assert "".join(parts) == written.replace(text.MARKER, "")
    assert not any(piece in part for piece in PIECES for part in parts)


def user(content):
    return {"role": "user", "content": content}


def answer(content):
    return {"role": "assistant", "content": content}


@pytest.mark.parametrize(
    ("messages", "given", "in_answers"),
    [
        ([user("<image>a")], 1, False),
        ([user("no tag at all")], 2, False),
        ([user("hello")], 0, False),
        ([user("<image>a"), answer("an <image> tag"), user("b")], 1, False),
        ([user("a"), answer("an <image> tag"), user("b")], 0, False),
        ([user("a"), answer("<image>")], 1, True),
        ([user("<image>a"), answer("<image>")], 2, True),
        ([user("<image>a"), answer([1, 2, 3]), {"role": "tool", "content": "<image>"}], 2, False),
        ([user("a"), answer("<image><image>")], 1, False),
    ],
)
def test_tags_that_fit(messages, given, in_answers):
    assert text.check_tags(None, messages, {"image": given}) is in_answers


@pytest.mark.parametrize(
    ("messages", "given"),
    [
        ([user("<image><image>a")], 1),
        ([user("<image>a")], 0),
        ([user("<image>a")], 2),
        ([user("<image>"), answer("<image>")], 3),
    ],
)
def test_tags_that_do_not_fit_are_named_with_their_row(messages, given):
    with pytest.raises(DatasetRowError, match=r"<image> tags for \d images \[the row that asks '<image>"):
        text.check_tags(None, messages, {"image": given})


def test_a_tag_in_the_system_prompt_counts():
    assert text.check_tags("<image>", [user("a")], {"image": 1}) is False


def test_videos_become_images_in_their_place():
    contents, images = videos_as_images([None, "<image>a<video>b", "<video>"], ["first"], [["x", "y"], ["z"]])
    assert contents == [None, "<image>a<image>\n<image>b", "<image>"]
    assert images == ["first", "x", "y", "z"]
