import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.group.batch_sizes import BatchSizes, cuts, forwarded, grouped


@pytest.mark.parametrize(
    ("asked", "group", "expected"),
    [
        (BatchSizes(1, 8, 8), 8, BatchSizes(8, 1, 1)),
        (BatchSizes(1, 32, 32), 8, BatchSizes(8, 4, 4)),
        (BatchSizes(2, 8, 8), 8, BatchSizes(8, 2, 2)),
        (BatchSizes(1, 4, 4), 8, BatchSizes(4, 1, 1)),  # half of a group on each of two ranks
        (BatchSizes(1, 12, 12), 8, BatchSizes(4, 3, 3)),
        (BatchSizes(1, 16, 8), 8, BatchSizes(8, 2, 1)),
        (BatchSizes(16, 2, 2), 8, BatchSizes(16, 2, 2)),  # whole groups already
    ],
)
def test_examples(asked, group, expected):
    assert grouped(asked, group, completion=100) == expected


@given(
    st.integers(1, 16),
    st.integers(1, 16),
    st.integers(1, 16),
    st.integers(2, 16),
    st.sampled_from([0, 300, 1000]),
)
def test_the_effective_batch_stays_and_no_micro_batch_crosses_a_group(
    batch, steps, generation, group, budget
):
    asked = BatchSizes(batch, steps, generation)
    try:
        made = grouped(asked, group, completion=100, budget=budget)
    except RefusedError:
        return
    assert made.batch * made.accumulation == batch * steps
    assert made.batch * made.per_generation == batch * generation
    assert made == asked or group % made.batch == 0
    assert not budget or made.batch * 100 <= budget


def test_a_budget_splits_a_group():
    assert grouped(BatchSizes(1, 8, 8), 8, completion=1000, budget=5000) == BatchSizes(4, 2, 2)


@pytest.mark.parametrize(
    ("sizes", "group", "budget", "message"),
    [
        (BatchSizes(1, 7, 7), 8, 0, "share no prompt in groups of 8"),
        (BatchSizes(1, 4, 8), 8, 0, "4 completions per step and rank cannot be cut into micro-batches of 8"),
        (BatchSizes(1, 8, 8), 8, 50, "one completion may have 100 tokens, more than the 50"),
    ],
)
def test_what_does_not_divide_is_refused(sizes, group, budget, message):
    with pytest.raises(RefusedError, match=message):
        grouped(sizes, group, completion=100, budget=budget)


@pytest.mark.parametrize(
    ("asked", "group", "expected"),
    [
        (BatchSizes(1, 8, 8), 8, [(8, 1), (4, 1), (2, 1)]),
        (BatchSizes(4, 2, 2), 8, [(8, 1)]),
        (BatchSizes(1, 16, 16), 8, [(8, 1), (4, 1), (2, 1)]),  # two whole groups share no more than one
        (BatchSizes(16, 2, 2), 8, []),  # whole groups already
        (BatchSizes(1, 4, 8), 8, [(4, 1), (2, 1)]),  # a step of half a group
        (BatchSizes(1, 7, 7), 7, [(7, 1)]),
        (BatchSizes(1, 6, 6), 8, [(6, 2), (2, 1)]),  # groups straddle ranks: 6 + 2, 4 + 4, 2 + 6
        (BatchSizes(1, 3, 3), 8, [(3, 2)]),
        (BatchSizes(1, 4, 4), 12, [(4, 1), (2, 1)]),
        (BatchSizes(1, 3, 8), 8, []),  # cannot be cut
        (BatchSizes(1, 1, 1), 8, []),
    ],
)
def test_ways_to_share_more(asked, group, expected):
    found = cuts(asked, group)
    assert [(cut.sizes.batch, cut.prompts) for cut in found] == expected


@pytest.mark.parametrize(
    ("asked", "group", "expected"),
    [
        (BatchSizes(1, 16, 16), 8, [(16, 2), (8, 1), (4, 1), (2, 1)]),
        (BatchSizes(8, 4, 4), 8, [(32, 4), (16, 2)]),  # spares no prompt, and gathers less often
        (BatchSizes(8, 3, 6), 8, [(24, 3)]),  # a step of three groups, two steps a generation
        (BatchSizes(32, 1, 1), 8, []),
    ],
)
def test_several_groups_are_one_pack_where_each_pack_gathers_the_weights(asked, group, expected):
    ways = cuts(asked, group, gathers=True)
    assert [(cut.sizes.batch, cut.prompts) for cut in ways] == expected


@given(*[st.integers(1, 12)] * 3, st.integers(2, 16), st.integers(1, 8), st.booleans())
def test_a_cut_keeps_steps_and_generations_and_forwards_no_more_prompts(
    batch, steps, per, group, ranks, gathers
):
    asked = BatchSizes(batch, steps, per)
    held = batch * per

    def prompts(size):
        """Of the rank with most, counted."""
        places = [
            range(rank * held + at, rank * held + at + size)
            for rank in range(ranks)
            for at in range(0, held, size)
        ]
        of_parts = [len({place // group for place in part}) for part in places]
        per_rank = len(places) // ranks
        return max(sum(of_parts[rank * per_rank : (rank + 1) * per_rank]) for rank in range(ranks))

    for cut in cuts(asked, group, gathers=gathers):
        assert cut.sizes.batch * cut.sizes.accumulation == batch * steps
        assert cut.sizes.batch * cut.sizes.per_generation == held
        assert prompts(cut.sizes.batch) <= forwarded(cut.sizes.batch, held, group)[0]
        before, after = (forwarded(size, held, group)[0] for size in (batch, cut.sizes.batch))
        assert after < before or (gathers and after == before and cut.sizes.batch > batch)
