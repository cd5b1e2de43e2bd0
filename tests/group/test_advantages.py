"""Advantages over scored members: the host's where all are scored, and what holds for any batch."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from swift.rl_core.advantage import compute_advantages

from swift_grpo_ext.group.advantages import group_advantages

ESTIMATORS = ["grpo", "rloo", "reinforce_plus_plus"]
SCALES = ["group", "batch", "none", "gdpo"]
MODES = [(estimator, scale) for estimator in ESTIMATORS for scale in SCALES]
NOT_SCORED = [None, math.nan, math.inf, -math.inf]

modes = st.sampled_from(MODES)
sixteenths = st.integers(-64, 64).map(lambda n: n / 16)  # sums and shifts of them are exact


@st.composite
def batches(draw, unscored=True, functions=2):
    """(rewards (n, functions), weights, group ids) with groups of equal size."""
    groups, size = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    value = sixteenths | st.just(math.nan) if unscored else sixteenths
    row = st.lists(value, min_size=functions, max_size=functions)
    rows = draw(st.lists(row, min_size=groups * size, max_size=groups * size))
    weights = torch.tensor([1.0, 0.5, 0.25][:functions])
    return torch.tensor(rows), weights, torch.arange(groups).repeat_interleave(size)


def run(rewards, weights, group, mode, **more):
    return group_advantages(rewards, weights, group, estimator=mode[0], scale=mode[1], **more)


@given(batches(unscored=False), modes)
def test_equal_to_the_host_when_all_are_scored(batch, mode):
    """To the host's function in double precision: in single its rounding of constant groups is scaled up."""
    rewards, weights, group = batch
    assume(len(rewards) > 1)  # the host gives NaN for a gdpo batch of one
    size = int((group == 0).sum())
    theirs, their_rewards = compute_advantages(rewards.double(), weights.double(), size, *mode)
    ours = run(rewards, weights, group, mode)
    torch.testing.assert_close(ours.advantages, theirs.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.rewards, their_rewards.float(), rtol=0, atol=0)
    assert ours.kept.all() == (size > 1)


@given(batches(), modes)
def test_an_unscored_row_is_that_row_removed(batch, mode):
    rewards, weights, group = batch
    whole = run(rewards, weights, group, mode)
    rest = run(rewards[whole.scored], weights, group[whole.scored], mode)
    torch.testing.assert_close(whole.advantages[whole.scored], rest.advantages, rtol=1e-5, atol=1e-6)
    assert (whole.advantages[~whole.scored] == 0).all()
    assert whole.rewards[~whole.scored].isnan().all()


@given(batches(), modes)
def test_always_finite_and_zero_where_dropped(batch, mode):
    result = run(*batch, mode)
    assert result.advantages.isfinite().all()
    assert (result.advantages[~result.kept] == 0).all()
    assert not (result.kept & ~result.scored).any()


@given(batches(), modes, st.randoms(use_true_random=False))
def test_permutation_of_rows(batch, mode, random):
    rewards, weights, group = batch
    order = torch.tensor(random.sample(range(len(rewards)), len(rewards)))
    ours = run(rewards, weights, group, mode).advantages[order]
    permuted = run(rewards[order], weights, group[order], mode).advantages
    torch.testing.assert_close(permuted, ours, rtol=1e-5, atol=1e-6)


@given(batches(), modes, sixteenths)
def test_shift_of_a_groups_rewards(batch, mode, shift):
    rewards, weights, group = batch
    assume(mode[1] != "batch" or mode[0] == "reinforce_plus_plus")  # a group's shift widens the batch
    shifted = rewards + shift * (group == 0).unsqueeze(1)
    torch.testing.assert_close(
        run(shifted, weights, group, mode).advantages,
        run(rewards, weights, group, mode).advantages,
        rtol=1e-4,
        atol=1e-4,
    )


@given(batches(functions=1), modes, st.sampled_from([2.0, 4.0, 8.0]))
def test_scale_of_the_rewards(batch, mode, factor):
    rewards, weights, group = batch
    once, more = run(rewards, weights, group, mode), run(rewards * factor, weights, group, mode)
    if mode[1] == "none" or mode == ("reinforce_plus_plus", "gdpo"):
        torch.testing.assert_close(more.advantages, once.advantages * factor)
    else:  # up to the epsilon of 1e-4 over deviations of at least 1/64
        torch.testing.assert_close(more.advantages, once.advantages, rtol=1e-2, atol=1e-6)


@given(st.integers(2, 12), st.floats(-10, 10, width=32), modes)
def test_a_group_of_equal_rewards_has_exactly_no_advantage(size, value, mode):
    result = run(torch.full((size, 1), value), torch.ones(1), torch.zeros(size, dtype=torch.long), mode)
    assert (result.advantages == 0).all()
    assert (result.group_std == 0).all()


@settings(max_examples=30)
@given(batches(), modes)
def test_groups_do_not_see_each_other_unless_scaled_by_the_batch(batch, mode):
    rewards, weights, group = batch
    assume(mode[1] in ("group", "none"))
    whole = run(rewards, weights, group, mode).advantages
    for number in group.unique():
        rows = group == number
        alone = run(rewards[rows], weights, group[rows], mode).advantages
        torch.testing.assert_close(whole[rows], alone)


@pytest.mark.parametrize("missing", NOT_SCORED)
@pytest.mark.parametrize("value", [1.0, -1.0])
@pytest.mark.parametrize("mode", MODES)
def test_the_unscored_one_of_four(missing, value, mode):
    """The host gives it -1.5 among ones and +1.5 among minus ones."""
    rewards = torch.tensor([[value], [value], [value], [math.nan if missing is None else missing]])
    result = run(rewards, torch.ones(1), torch.zeros(4, dtype=torch.long), mode)
    assert result.advantages.tolist() == [0, 0, 0, 0]
    assert result.kept.tolist() == [True, True, True, False]


def test_one_scored_member_is_not_enough():
    result = run(
        torch.tensor([[1.0], [math.nan], [math.nan]]), torch.ones(1), torch.zeros(3).long(), ("grpo", "group")
    )
    assert result.scored.tolist() == [True, False, False]
    assert not result.kept.any()


def test_a_function_that_scores_nobody_in_a_group_does_not_apply_to_it():
    nan = math.nan
    rewards = torch.tensor([[1.0, nan], [0.0, nan], [nan, 2.0], [nan, 4.0]])
    result = run(rewards, torch.ones(2), torch.tensor([7, 7, 3, 3]), ("grpo", "none"))
    assert result.advantages.tolist() == [0.5, -0.5, -1.0, 1.0]
    assert result.scored.all()


def test_a_function_that_scores_some_leaves_the_others_out():
    """Summing what is there would rank the third, which merely lost its second score, below the others."""
    rewards = torch.tensor([[1.0, 1.0], [0.0, 1.0], [1.0, math.nan]])
    result = run(rewards, torch.ones(2), torch.zeros(3, dtype=torch.long), ("grpo", "none"))
    assert result.advantages.tolist() == [0.5, -0.5, 0.0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("watched", [math.nan, math.inf, 7.0])
def test_a_function_of_weight_zero_takes_no_part(mode, watched):
    """Where it gives no score either: a reward that is only logged must not cost completions."""
    scores = torch.tensor([[1.0], [0.0], [0.5], [0.25]])
    with_watched = torch.cat([scores, torch.tensor([[0.0], [watched], [3.0], [watched]])], dim=1)
    group = torch.zeros(4, dtype=torch.long)
    alone = run(scores, torch.ones(1), group, mode)
    both = run(with_watched, torch.tensor([1.0, 0.0]), group, mode)
    torch.testing.assert_close(both.advantages, alone.advantages, rtol=0, atol=0)
    assert both.kept.all()


def test_all_weights_zero_is_no_reward():
    result = run(torch.tensor([[1.0], [math.nan]]), torch.zeros(1), torch.zeros(2).long(), ("grpo", "group"))
    assert result.advantages.tolist() == [0, 0]


def test_the_penalty_is_taken_off_before_the_baseline():
    penalty = torch.tensor([0.0, 1.0, math.nan])
    rewards = torch.ones(3, 1)
    result = run(rewards, torch.ones(1), torch.zeros(3).long(), ("grpo", "none"), penalty=penalty)
    assert result.advantages.tolist() == [0.5, -0.5, 0.0]


def test_no_reward_function_at_all():
    result = run(torch.zeros(4, 0), torch.zeros(0), torch.tensor([0, 0, 1, 1]), ("grpo", "group"))
    assert result.advantages.tolist() == [0, 0, 0, 0]
    assert result.scored.all()
