import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.contract import Outcome
from swift_grpo_ext.rewards.runtime.batch import NOT_FINITE, outcomes_of


@pytest.mark.parametrize(
    "output",
    [
        [1, 0.5, None],
        (True, np.float32(0.5), math.nan),
        torch.tensor([1.0, 0.5, math.nan]),
        np.array([1.0, 0.5, np.nan]),
        (score for score in [1, torch.tensor(0.5), None]),
    ],
)
def test_any_sequence_of_numbers_and_none(output):
    assert [outcome.score for outcome in outcomes_of(output, 3, "r")] == [1.0, 0.5, None]


@pytest.mark.parametrize("value", [math.inf, -math.inf, 10**400])
def test_infinite_scores_are_not_scored(value):
    assert outcomes_of([value, 1], 2, "r") == [Outcome(None, NOT_FINITE), Outcome(1.0)]


def test_nan_is_told_from_none():
    outcomes = outcomes_of([None, math.nan, 1, -math.inf], 4, "r")
    assert [row for row, outcome in enumerate(outcomes) if outcome.reason] == [1, 3]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([0.5], r"'mean' returned 1 scores for 4 completions"),
        ([1, 2, 3, 4, 5], r"'mean' returned 5 scores for 4 completions"),
        (0.5, r"'mean' returned float -> return a list"),
        (None, r"'mean' returned NoneType"),
        ("0001", r"'mean' returned str"),
        ({0: 1, 1: 1, 2: 1, 3: 1}, r"'mean' returned dict"),
        ([1, 1, "one", 1], r"'mean' returned 'one' \(str\) \[completion 2 of the batch\]"),
        ([1, [1, 2], 1, 1], r"'mean' returned '\[1, 2\]' \(list\) \[completion 1"),
        (torch.ones(4, 2), r"'mean' returned .* \(Tensor\) \[completion 0"),
    ],
)
def test_refused_with_the_name_and_the_place(output, message):
    with pytest.raises(RewardError, match=message):
        outcomes_of(output, 4, "mean")


@given(st.lists(st.none() | st.floats() | st.integers() | st.booleans()))
def test_never_a_number_that_is_not_finite(output):
    scores = [outcome.score for outcome in outcomes_of(output, len(output), "r")]
    assert len(scores) == len(output)
    assert all(score is None or math.isfinite(score) for score in scores)
    assert all(score is None for raw, score in zip(output, scores, strict=True) if raw is None)
