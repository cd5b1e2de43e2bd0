"""The bill of a step."""

import doctest

from swift_grpo_ext.watch import phases, records
from swift_grpo_ext.watch.phases import EVERY, FIRST, Bill, line


def test_the_examples_run():
    assert doctest.testmod(phases).failed == 0
    assert doctest.testmod(records).failed == 0


def test_the_longest_phase_comes_first_with_advice():
    text = line({"backward": 1.0, "encode": 4.2, "rollout": 4.0, "between": 0.8}, {}, 10)
    assert text.startswith(
        "1 s a step: encoding for the engine 42 %, rollout 40 %, backward 10 %, between steps 8 %"
    )
    assert text.endswith("(encoding for the engine: MAX_PIXELS, or more CPU cores for it)")


def test_what_was_saved_is_counted_over_steps():
    made, texts = Bill(), []
    step = {
        "tokens": 100,
        "stock tokens": 400,
        "images": 1,
        "stock images": 8,
        "passes": 2,
        "stock passes": 3,
    }
    for _ in range(FIRST + EVERY):
        made.work.update(step)
        texts.append(made.add({"forward": 1.0, "start": 60.0}))
    assert [number for number, text in enumerate(texts, 1) if text] == [FIRST, FIRST + EVERY]
    assert texts[-1] == (
        "1 s a step: policy forward 100 %; saved 75 % of tokens forwarded, 88 % of images encoded, 33 % of passes"
    )
    assert made.close() == ""


def test_nothing_measured_is_no_error():
    assert line({}, {}, 1) == "0 s a step: rest 100 %"
