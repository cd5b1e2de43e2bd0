"""Finding moments in a video."""

import json
from collections.abc import Iterable

from swift_grpo_ext.rewards.contract import Columns, Outcome, Unscorable, as_gold, gold_value, reward
from swift_grpo_ext.rewards.gold.columns import as_text
from swift_grpo_ext.rewards.gold.times import invented_times
from swift_grpo_ext.rewards.place import answer_of, unwrapped
from swift_grpo_ext.rewards.values.span import Span, read

GOLD = ("solution", "timestamp", "timestamps", "answer")


def union(spans: Iterable[Span]) -> list[Span]:
    """The same times as disjoint spans in order."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def span_iou(predicted: Iterable[Span], gold: Iterable[Span]) -> float:
    """Length of the shared time over length of the time in either, 0..1; 0 if both are empty."""
    spans = [*union(predicted), *union(gold)]
    both, either = (sum(end - start for start, end in part) for part in (spans, union(spans)))
    return min(1.0, max(0.0, (both - either) / either)) if either > 0 else 0.0


def _gold_spans(columns: Columns) -> list[Span]:
    return as_gold(read, unwrapped(as_text(gold_value(columns, GOLD))))


@reward(gold=GOLD, gold_text=lambda row, **_: json.dumps(_gold_spans(row)))
def temporal_iou(completion: str, columns: Columns) -> Outcome:
    """Intersection over union of the predicted with the gold moments of a video, 0..1.

    Several spans are taken as the union of their times, so overlapping ones count once.

    Gold: ``solution`` (or ``timestamp``, ``timestamps``, ``answer``): one span or several, in seconds or
        as clock times.
    Raises:
        Unscorable: No gold, a gold without any span from an earlier to a later time, or a video of frames
            whose times in the prompt are not those of the clip.
    Rises with: The shared time, relative to the time in either.
    Gaming:
        - One span over the whole video: its IoU is the gold's share of it (test_the_whole_video).
        - The same span again: counts once (test_overlapping_spans_count_once).
        - A span that ends before it starts: left out (test_inverted_spans_are_left_out).
    Frame: Seconds from the start of the video.
    Source: Temporal IoU of moment retrieval, on unions of intervals.
    Example:
        >>> get_reward("ext_temporal_iou")("from 10 s to 20 s", {"solution": [10, 30]})
        0.5
    """
    gold = _gold_spans(columns)
    if invented := invented_times(columns):
        raise Unscorable(invented)
    predicted = read(answer_of(completion))
    return Outcome.of(span_iou(predicted, gold), predicted, gold)
