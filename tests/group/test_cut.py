import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.group.cut import BatchSizes, Memory, cut, cuts, forwarded, most_together


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
    assert [(way.sizes.batch, way.prompts) for way in found] == expected


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
    assert [(way.sizes.batch, way.prompts) for way in ways] == expected


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

    for way in cuts(asked, group, gathers=gathers):
        size = way.sizes.batch
        assert size * way.sizes.accumulation == batch * steps
        assert size * way.sizes.per_generation == held
        assert prompts(size) <= forwarded(size, held, group)[0]
        before, after = (forwarded(each, held, group)[0] for each in (batch, size))
        assert after < before or (gathers and after == before and size > batch)


@given(*[st.integers(1, 12)] * 2, st.integers(1, 16))
def test_most_completions_of_a_prompt_in_a_micro_batch_are_those_of_some_rank(batch, per, group):
    held = batch * per
    most = 0
    for rank in range(group):
        for at in range(rank * held, (rank + 1) * held, batch):
            of_groups = [place // group for place in range(at, at + batch)]
            most = max(most, *map(of_groups.count, of_groups))
    assert most_together(batch, held, group) == most


def cut_with(sizes, group, tokens=16, why_not="", **options):
    return cut(
        sizes,
        group,
        lambda: Memory(tokens),
        why_not=lambda: why_not,
        more="--gradient_accumulation_steps {}".format,
        **options,
    )


def test_a_cut_says_what_it_did_and_how_to_leave_it():
    assert cut_with(BatchSizes(1, 8, 8), 4) == (
        BatchSizes(4, 2, 2),
        "Micro-batches regrouped so that prompts are shared: 4 x 2 completions instead of 1 x 8. Clip ratios "
        "are now averaged over the new micro-batches. SWIFT_GRPO_EXT_GROUP_BATCH=0 keeps your batch size",
    )


@pytest.mark.parametrize(
    ("sizes", "group", "options", "line"),
    [
        (BatchSizes(4, 2, 2), 4, {}, ""),  # whole groups already
        (
            BatchSizes(1, 1, 1),
            8,
            {},
            "each rank has one completion of a prompt, so none is shared; --gradient",
        ),
        (
            BatchSizes(1, 3, 8),
            4,
            {},
            "micro-batches stay 1 x 3: 3 completions per step cannot be cut into parts",
        ),
        (BatchSizes(1, 8, 8), 4, {"why_not": "a reason"}, "micro-batches stay 1 x 8: a reason"),
        (BatchSizes(1, 8, 8), 4, {"tokens": 10_000}, "micro-batches stay 1 x 8: no more of a group fits"),
        (BatchSizes(1, 8, 8), 4, {"stages": 8}, "micro-batches stay 1 x 8: 8 completions per step cannot be"),
    ],
)
def test_a_cut_that_stays_says_why(sizes, group, options, line):
    kept, said = cut_with(sizes, group, **options)
    assert kept == sizes
    assert said.startswith(line)
    assert bool(said) == bool(line)


def test_the_largest_that_fits_is_taken():
    assert cut_with(BatchSizes(1, 8, 8), 8, tokens=2048)[0] == BatchSizes(8, 1, 1)
    assert cut_with(BatchSizes(1, 8, 8), 8, tokens=4096)[0] == BatchSizes(4, 2, 2)
    assert cut_with(BatchSizes(1, 8, 8), 8, tokens=4096, stages=3)[0] == BatchSizes(2, 4, 4)
