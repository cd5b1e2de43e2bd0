import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trl.rewards import get_soft_overlong_punishment

from swift_grpo_ext.rewards.length import cosine, overlong

lengths = st.integers(1, 5000)


@given(lengths, st.integers(2, 4000), st.integers(1, 4000))
def test_overlong_is_trls(length, maximum, cache):
    cache = min(cache, maximum)
    ids = list(range(length))
    expected = get_soft_overlong_punishment(maximum, cache)([ids])[0]
    assert overlong("", {"response_token_ids": ids}, max_tokens=maximum, cache_tokens=cache) == pytest.approx(
        expected
    )


def test_overlong_is_clamped():
    row = {"response_token_ids": [list(range(50_000)), list(range(50_000))]}
    assert overlong("", row, max_tokens=1000, cache_tokens=100) == -1.0
    assert overlong("", row, max_tokens=200_000) == 0.0


def test_the_slope_is_a_fifth_by_default():
    assert overlong("", {"response_token_ids": [1] * 90}, max_tokens=100) == pytest.approx(-0.5)


@pytest.mark.parametrize("row", [{}, {"response_token_ids": []}, {"response_token_ids": [1]}])
def test_without_tokens_or_maximum_length_is_unscored(row):
    assert overlong("x", row) is None
    assert cosine("x", row) is None


def test_cosine_is_clamped_beyond_the_maximum():
    row = {"accuracy": 1.0, "max_tokens": 100}
    scores = [cosine("", {**row, "response_token_ids": [1] * n}) for n in range(1, 400)]
    assert scores[0] == pytest.approx(1.0, abs=1e-3)
    assert scores == sorted(scores, reverse=True)
    assert set(scores[99:]) == {0.5}


@given(st.integers(1, 1000), st.booleans())
def test_cosine_is_the_papers_formula_up_to_the_maximum(length, right):
    row = {"accuracy": float(right), "max_tokens": 1000, "response_token_ids": [1] * length}
    low, high = (0.5, 1.0) if right else (0.0, -0.5)
    expected = low + 0.5 * (high - low) * (1 + math.cos(length * math.pi / 1000))
    assert cosine("", row) == pytest.approx(expected)


@given(lengths, lengths)
def test_no_wrong_completion_earns_more_than_a_right_one(one, other):
    row = {"max_tokens": 1000}
    right = cosine("", {**row, "accuracy": 1.0, "response_token_ids": [1] * one})
    wrong = cosine("", {**row, "accuracy": 0.0, "response_token_ids": [1] * other})
    assert wrong < right
