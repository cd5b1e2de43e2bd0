"""Groups are dealt to ranks: nothing is lost, each rank has as many as before, and about as many tokens."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.group.balance import EVEN, dealt, imbalance

STEPS = st.integers(1, 6).flatmap(
    lambda held: st.lists(
        st.lists(st.integers(1, 10_000), min_size=held, max_size=held), min_size=1, max_size=8
    )
)


def ragged(numbers):
    """Tokens of a group of eight: most completions are short, some have the 1,024 that they may have."""
    median = 200 * numbers.lognormvariate(0, 0.7)
    completions = [min(1024, round(median * numbers.lognormvariate(0, 0.7))) for _ in range(8)]
    return numbers.randint(200, 1400) + sum(completions)


def held_by(tokens, of_ranks):
    return [[tokens[rank][number] for rank, number in places] for places in of_ranks]


@given(STEPS)
def test_every_group_has_one_rank_and_each_rank_as_many_as_before(tokens):
    of_ranks = dealt(tokens)
    assert [len(places) for places in of_ranks] == [len(of_rank) for of_rank in tokens]
    everyone = {(rank, number) for rank, held in enumerate(tokens) for number in range(len(held))}
    assert {place for places in of_ranks for place in places} == everyone
    assert all(held == sorted(held, reverse=True) for held in held_by(tokens, of_ranks))


@given(STEPS)
def test_nothing_moves_where_ranks_are_even(tokens):
    if imbalance(tokens) <= EVEN:
        assert all(holder == rank for rank, places in enumerate(dealt(tokens)) for holder, _ in places)


def test_what_is_even_again_after_one_exchange_moves_no_more():
    assert imbalance([[900, 800], [100, 200]]) == pytest.approx(0.7)
    assert dealt([[900, 800], [100, 200]]) == [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ragged_groups_are_even_within_a_tenth(ranks):
    """With four prompts of a rank; benchmarks/balance.py prints other numbers of them."""
    numbers = random.Random(ranks)
    before, after = [], []
    for _ in range(100):
        tokens = [[ragged(numbers) for _ in range(4)] for _ in range(ranks)]
        before.append(imbalance(tokens))
        after.append(imbalance(held_by(tokens, dealt(tokens))))
    assert sum(before) / 100 > 0.1
    assert sum(after) / 100 < 0.06
