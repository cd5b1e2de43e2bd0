"""Held-out rewards: intervals, the best evaluation, and when to stop."""

import math
import random

import pytest
from scipy import stats

from swift_grpo_ext.watch.held_out import (
    FILE,
    Evaluation,
    HeldOutHistory,
    append,
    interval,
    read_evaluations,
)

ROWS = "40 of 40 rows (seed 1)"


def evaluation(step, right, rows=40, where=ROWS):
    """An evaluation in which the first rows are right and the others wrong."""
    scores = tuple(1.0 if number < right else 0.0 for number in range(rows))
    return Evaluation(step, {"reward": scores}, rows=where)


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


def test_the_best_says_of_how_many_it_is():
    assert history().best_in_words == ""
    assert history(evaluation(10, 20)).best_in_words == "0.5 (0.338 to 0.662), of the only evaluation"
    found = history(evaluation(10, 20), evaluation(20, 10), evaluation(30, 12))
    assert found.best_in_words == "0.5 (0.338 to 0.662), the best of 3 evaluations"


def test_a_step_that_is_done_again_replaces_its_evaluation():
    found = history(evaluation(10, 10), evaluation(20, 20), evaluation(20, 25))
    assert [one.step for one in found.evaluations] == [10, 20]
    assert found.best.interval().mean == 25 / 40


@pytest.mark.parametrize(
    ("right", "patience", "stops"),
    [
        ([28, 30, 10], 2, False),
        ([28, 30, 10, 8], 2, True),
        ([28, 30, 10, 8], 0, False),
        ([30, 30, 30], 2, True),  # an equal one is not better
        ([30, 29, 31], 2, False),
        ([30, 29, 31, 30, 30], 2, True),
        ([], 1, False),
    ],
)
def test_a_run_stops_after_so_many_evaluations_without_a_better_one(right, patience, stops):
    found = history(*(evaluation(10 * number, count) for number, count in enumerate(right, 1)))
    reason = found.why_stop(patience)
    assert bool(reason) == stops
    assert not stops or reason.startswith("held-out reward has not been better than ")
    assert not stops or reason.endswith(f" for {patience} evaluations")


def test_evaluations_of_other_rows_do_not_count():
    found = history(evaluation(10, 30, where="others"), evaluation(20, 20), evaluation(30, 10))
    assert found.why_stop(2) == ""
    assert "of step 20 for 1 evaluation" in found.why_stop(1)


def test_what_is_written_is_read(tmp_path):
    written = [evaluation(10, 3), evaluation(20, 5), evaluation(20, 6)]
    for one in written:
        append(tmp_path, one)
    with open(tmp_path / FILE, "a") as file:
        file.write('{"step": "x"}\n{"half')
    assert read_evaluations(tmp_path) == [written[0], written[2]]
    assert read_evaluations(tmp_path / "nowhere") == []
