import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.contract import Unread
from swift_grpo_ext.rewards.gold.times import invented_times
from swift_grpo_ext.rewards.temporal import span_iou, temporal_iou, union
from swift_grpo_ext.rewards.values.span import read


def parse_spans(text):
    try:
        return read(text)
    except Unread:
        return []


moment = st.integers(0, 40)
spans = st.lists(st.tuples(moment, moment).filter(lambda span: span[0] < span[1]), max_size=6)


@given(spans, spans)
def test_iou_is_that_of_a_grid(ours, theirs):
    a = {second for start, end in ours for second in range(start, end)}
    b = {second for start, end in theirs for second in range(start, end)}
    expected = len(a & b) / len(a | b) if a | b else 0.0
    assert span_iou(ours, theirs) == pytest.approx(expected)
    assert span_iou(theirs, ours) == pytest.approx(expected)


@given(spans)
def test_unions_are_disjoint_and_in_order(found):
    merged = union(found)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(merged))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12.5 to 30", [(12.5, 30)]),
        ("[12.5, 30.0]", [(12.5, 30)]),
        ("from 12.5s to 30 seconds", [(12.5, 30)]),
        ("12.5-30", [(12.5, 30)]),
        ("12.5 – 30", [(12.5, 30)]),
        ("00:12 - 01:05.5", [(12, 65.5)]),
        ("01:00:00 to 01:00:30", [(3600, 3630)]),
        ("[[1, 2], [3, 4]]", [(1, 2), (3, 4)]),
        ('{"start": 1, "end": 2.5}', [(1, 2.5)]),
        ("1m30s - 2m10s", []),
        ("2 min to 2.5 min", []),
        ("12 m/s", []),
        ("30 to 12", []),
        ("5 to 5", []),
        ("1, 2, 3", []),
        ("[1, 2] and [9, 3]", [(1, 2)]),
        ("nothing", []),
        ("1 to 99999999999", []),
    ],
)
def test_ways_to_write_spans(text, found):
    assert parse_spans(text) == found


def scored(text, gold=(10, 20)):
    return temporal_iou(f"<think>10 to 20</think><answer>{text}</answer>", {"solution": list(gold)})


def test_inverted_spans_are_left_out():
    assert scored("20 to 10") == 0.0
    assert scored("[[20, 10], [10, 20]]") == 1.0
    assert temporal_iou.outcome("1 to 2", {"solution": [20, 10]}).score is None


def test_overlapping_spans_count_once():
    assert scored("[[10, 20], [10, 20], [12, 18]]") == 1.0
    assert scored("[[10, 15], [12, 20]]") == 1.0


def test_the_whole_video():
    assert scored("0 to 1000") == pytest.approx(0.01)


def test_no_answer_has_an_empty_union():
    assert scored("I do not know") == 0.0
    assert span_iou([], []) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        '{"start_time": "00:10", "end_time": "00:20", "label": "step 3: pour 2 cups"}',
        '[{"event": "person 2 runs", "timestamp": [10, 20], "confidence": 0.9}]',
        '{"segments": [{"start": 10, "end": "20s", "id": 7}]}',
        '{"timestamps": ["10s - 20s"], "count": 3}',
        "<10.0 seconds> - <20.0 seconds>",
    ],
)
def test_numbers_in_labels_are_no_times(text):
    assert parse_spans(text) == [(10, 20)]


FRAMES = {"videos": [["frame.png"] * 301], "solution": [1, 3]}


@pytest.mark.parametrize(
    ("columns", "environ", "words"),
    [
        ({"videos": ["clip.mp4"]}, {}, ""),
        ({}, {}, ""),
        (FRAMES, {}, "its video is 301 frames without a frame rate, and frame 300 is written as 150 s"),
        (
            {**FRAMES, "fps": 30},
            {},
            "frame 300 of a 30 fps clip is written as 150 s, it is at 10 s: set FPS=30",
        ),
        ({**FRAMES, "fps": 2.0}, {}, ""),
        ({**FRAMES, "fps": 30}, {"FPS": "30"}, ""),
        (FRAMES, {"FPS": "30"}, ""),
        ({**FRAMES, "fps": 30, "chat_template_kwargs": {"raw_fps": 30}}, {}, ""),
        ({**FRAMES, "fps": "many"}, {}, "without a frame rate"),
        ({**FRAMES, "chat_template_kwargs": 5}, {}, "without a frame rate"),
        ({**FRAMES, "videos": 5}, {}, ""),
    ],
)
def test_times_of_frames_are_known_or_invented(columns, environ, words):
    found = invented_times(columns, environ)
    assert words in found
    assert bool(found) == bool(words)


def test_invented_times_are_not_scored(monkeypatch):
    monkeypatch.delenv("FPS", raising=False)
    outcome = temporal_iou.outcome("from 1 s to 3 s", FRAMES)
    assert outcome.score is None
    assert "301 frames without a frame rate" in outcome.reason
    assert temporal_iou("from 1 s to 3 s", {**FRAMES, "fps": 2}) == 1
