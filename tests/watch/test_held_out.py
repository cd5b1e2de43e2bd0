"""Held-out rewards: intervals, the best evaluation, and when to stop."""

import math
import random
from statistics import fmean

import pytest
from scipy import stats

from swift_grpo_ext.watch.held_out import (
    FILE,
    Evaluation,
    HeldOutHistory,
    append,
    interval,
    read_evaluations,
    rows_within,
)

ROWS = "40 of 40 rows (seed 1)"


def evaluation(step, right, rows=40, where=ROWS, training=None):
    """An evaluation in which the first rows are right and the others wrong."""
    scores = tuple(1.0 if number < right else 0.0 for number in range(rows))
    error = None if training is None else 0.01
    return Evaluation(step, {"reward": scores}, rows=where, training_reward=training, training_error=error)


def history(*evaluations):
    found = HeldOutHistory()
    for one in evaluations:
        found.add(one)
    return found


def test_the_interval_is_that_of_students_t():
    draw = random.Random(1)
    values = [draw.random() for _ in range(17)]
    expected = stats.t.interval(0.95, 16, loc=sum(values) / 17, scale=stats.sem(values))
    ours = interval(values)
    assert (ours.low, ours.high) == pytest.approx(expected, rel=1e-12)


def test_one_row_has_no_interval_and_no_row_no_mean():
    assert interval([]) is None
    assert math.isinf(interval([0.5]).high)
    assert str(interval([0.5])) == "0.5"


def test_a_paired_change_is_surer_than_two_intervals():
    before, after = evaluation(10, right=20), evaluation(20, right=27)
    assert after.interval().low < before.interval().high  # they overlap
    assert after.change_since(before).low > 0


def test_unscored_rows_take_no_part():
    before = Evaluation(1, {"reward": (1.0, None, 0.0)}, rows=ROWS)
    after = Evaluation(2, {"reward": (1.0, 1.0, None)}, rows=ROWS)
    assert after.unscored == 1
    assert after.change_since(before).mean == 0
    assert before.interval().mean == 0.5


def test_other_rows_are_not_compared():
    before, after = evaluation(10, 20), evaluation(20, 5, where="others")
    assert after.change_since(before) is None
    assert history(before, after).best.step == 20


def test_the_last_of_equal_ones_is_the_best():
    assert history(evaluation(10, 30), evaluation(20, 31), evaluation(30, 31)).best.step == 30
    assert history(evaluation(10, 31), evaluation(20, 31), evaluation(30, 30)).best.step == 20


def test_the_interval_of_the_best_holds_although_it_was_chosen():
    """Of runs that stay at 0.5 the best of ten evaluations is too good; by its own interval in one of four."""
    draws = random.Random(0)
    runs = [
        HeldOutHistory(evaluations=[Evaluation(n, {"reward": tosses(draws, 100)}) for n in range(10)])
        for _ in range(300)
    ]
    noise = 3 * math.sqrt(0.05 * 0.95 / len(runs))
    assert share_that_holds(run.best.interval() for run in runs) < 0.85
    assert share_that_holds(run.best_interval for run in runs) >= 0.95 - noise


def tosses(draws, rows):
    return tuple(float(draws.random() < 0.5) for _ in range(rows))


def share_that_holds(intervals):
    return fmean(interval.low <= 0.5 <= interval.high for interval in intervals)


def test_a_step_that_is_done_again_replaces_its_evaluation():
    found = history(evaluation(10, 10), evaluation(20, 20), evaluation(20, 25))
    assert [one.step for one in found.evaluations] == [10, 20]
    assert found.best.interval().mean == 25 / 40


def test_a_clear_fall_stops_after_patience_and_not_before():
    steps = [evaluation(10, 28), evaluation(20, 30), evaluation(30, 10), evaluation(40, 8)]
    assert history(*steps[:3]).why_stop(2) == ""
    reason = history(*steps).why_stop(2)
    assert "below its best of steps 10 to 20 for 2 evaluations" in reason
    assert history(*steps).why_stop(0) == ""


def test_a_fall_is_one_where_less_is_better_too():
    errors = history(*(evaluation(10 * n, wrong) for n, wrong in enumerate((12, 10, 30, 32), 1)))
    errors.greater_is_better = False
    assert errors.why_stop(2).startswith("held-out reward has been below its best of steps 10 to 20 for 2")


def test_a_fall_as_large_as_the_swings_before_it_does_not_stop():
    """Of many rows the answers are worse beyond doubt, but a policy that swings will swing back."""
    right = [600, 680, 580, 660, 590, 590]
    swinging = history(*(evaluation(10 * n, count, rows=1000) for n, count in enumerate(right, 1)))
    newest, best = swinging.evaluations[-1], swinging.best
    assert newest.change_since(best).high < 0
    assert swinging.why_stop(2) == ""
    steady = [640, 645, 650, 645, 590, 590]
    fallen = history(*(evaluation(10 * n, count, rows=1000) for n, count in enumerate(steady, 1)))
    assert "for 2 evaluations" in fallen.why_stop(2)


@pytest.mark.parametrize("swings", [0.0, 0.05])
def test_of_a_hundred_runs_that_stay_as_they_are_at_most_five_are_stopped(swings):
    """Over all looks of a run together, with few rows and with swings of the policy itself."""
    draw = random.Random(3)
    stopped = 0
    for _ in range(100):
        found = HeldOutHistory()
        for number in range(1, 21):
            accuracy = 0.5 + draw.gauss(0, swings)
            scores = tuple(float(draw.random() < accuracy) for _ in range(60))
            found.add(Evaluation(number, {"reward": scores}, rows=ROWS))
            if found.why_stop(2):
                stopped += 1
                break
    assert stopped <= 5


def test_noise_below_the_best_does_not_stop():
    steps = [evaluation(10, 30), *(evaluation(step, 29) for step in range(20, 100, 10))]
    assert history(*steps).why_stop(1) == ""


def test_a_flat_held_out_reward_under_a_rising_one_is_named():
    steps = [evaluation(10 * n, 20, training=0.1 * n) for n in range(1, 7)]
    assert "held-out reward flat since step 20" in history(*steps).why_stop(2)
    assert "training reward up 0.36" in history(*steps).why_stop(2)  # less three standard errors


def test_a_held_out_reward_that_is_rising_again_is_not_flat():
    """Of a run that was stopped: 51, 44, 45, 42 and 49 of 100, the last clearly above the one before it."""
    right = [51, 44, 45, 42]
    steps = [evaluation(10 * n, of_step, rows=100, training=0.3 * n) for n, of_step in enumerate(right, 1)]
    assert "flat since step 10" in history(*steps, evaluation(50, 43, 100, training=1.5)).why_stop(2)
    assert history(*steps, evaluation(50, 49, 100, training=1.5)).why_stop(2) == ""


def test_exploited_rewards_are_named_where_less_is_better():
    """8 of 40 rows are wrong, then 12, of which 6 were right: it cannot have got much better."""
    first = (1.0,) * 8 + (0.0,) * 32
    later = (0.0,) * 2 + (1.0,) * 12 + (0.0,) * 26
    evaluations = [
        Evaluation(10 * n, {"reward": first if n == 1 else later}, 1.0, ROWS, 0.05 * n, 0.01)
        for n in range(1, 6)
    ]
    errors = HeldOutHistory(greater_is_better=False, evaluations=evaluations)
    assert errors.fall(2) == ""
    assert "flat since step 10" in errors.why_stop(2)


def test_a_training_reward_that_catches_up_with_the_held_out_one_does_not_stop():
    """Of a healthy run: sampled answers get surer, from 0.28 to 0.44 right, greedy ones were right more often."""
    right = [46, 42, 41, 53, 63, 56, 56, 62, 55]
    training = [0.21, 0.17, 0.25, 0.20, 0.28, 0.26, 0.31, 0.40, 0.44]
    found = HeldOutHistory()
    for number, (count, reward) in enumerate(zip(right, training, strict=True), 1):
        scores = tuple(float(row < count) for row in range(100))
        found.add(Evaluation(20 * number, {"reward": scores}, 1.0, ROWS, reward, 0.03))
        assert found.why_stop(2) == ""


def test_a_flat_training_reward_does_not_stop():
    steps = [evaluation(10 * n, 20, training=0.5) for n in range(1, 9)]
    assert history(*steps).why_stop(2) == ""


def test_healthy_noisy_runs_are_never_stopped():
    """50 runs of 30 evaluations whose true accuracy rises from 0.3 to 0.8: none is stopped."""
    draw = random.Random(7)
    for _ in range(50):
        hardness = [draw.random() for _ in range(100)]
        found = HeldOutHistory()
        for number in range(1, 31):
            accuracy = 0.3 + 0.5 * min(1.0, number / 20)
            scores = tuple(
                float(draw.random() < min(1.0, max(0.0, accuracy + 0.4 * (0.5 - hard)))) for hard in hardness
            )
            training = accuracy + draw.gauss(0, 0.02)
            found.add(Evaluation(10 * number, {"reward": scores}, 1.0, ROWS, training, 0.02))
            assert found.why_stop(3) == ""


def test_what_is_written_is_read(tmp_path):
    written = [evaluation(10, 3), evaluation(20, 5), evaluation(20, 6)]
    for one in written:
        append(tmp_path, one)
    with open(tmp_path / FILE, "a") as file:
        file.write('{"step": "x"}\n{"half')
    assert read_evaluations(tmp_path) == [written[0], written[2]]
    assert read_evaluations(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("between", "each", "rows", "expected"),
    [
        (600, 0.5, 1000, 56),  # 31.6 s: 63 rows, in batches of 8
        (600, 0.5, 40, 40),
        (1, 10.0, 100, 8),  # never fewer than a batch
        (600, 0.0, 100, 100),
    ],
)
def test_an_evaluation_takes_its_share(between, each, rows, expected):
    assert rows_within(0.05, between, each, rows, step=8) == expected
