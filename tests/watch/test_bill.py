"""The bill of a step."""

import doctest

from swift_grpo_ext.watch import phases, records
from swift_grpo_ext.watch.phases import EVERY, FIRST, Bill, Billing


def test_the_examples_run():
    assert doctest.testmod(phases).failed == 0
    assert doctest.testmod(records).failed == 0


def test_the_two_longest_phases_are_named_with_advice_on_the_longest():
    bill = Bill(10, {"backward": 1.0, "encode": 4.2, "rollout": 4.0, "between": 0.8}, {})
    assert str(bill) == (
        "1 s a step: encoding for the engine 42 %, rollout 40 % (encoding for the engine: MAX_PIXELS, or more "
        "CPU cores for it)"
    )


def test_what_was_saved_is_counted_over_steps():
    made, bills = Billing(), []
    step = {"tokens": 100, "stock tokens": 400}
    for _ in range(FIRST + EVERY):
        made.work.update(step)
        bills.append(made.add({"forward": 1.0, "start": 60.0}))
    assert [number for number, bill in enumerate(bills, 1) if bill] == [FIRST, FIRST + EVERY]
    assert str(bills[-1]) == "1 s a step: policy forward 100 %; saved 75 % of tokens"
    assert made.close() is None


def test_nothing_measured_is_no_error():
    assert str(Bill(1, {}, {})) == "0 s a step: "
