"""From the figures of the last steps to the cause."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.trainer.rollout_facts import empty_share, identical_share, meant_scores, reward_facts
from swift_grpo_ext.watch.causes import first_cause
from swift_grpo_ext.watch.learning import LearningMonitor
from swift_grpo_ext.watch.records import (
    RewardFacts,
    RolloutFacts,
    RunFacts,
    StepFacts,
)

RUN = RunFacts(num_generations=8)
GOOD_ROLLOUT = RolloutFacts(
    groups=8,
    rewards=(RewardFacts("iou", 1.0, 0.0, 0.2),),
    advantaged=0.9,
    zero_variance=0.1,
    identical=0.0,
    clipped=0.1,
    empty=0.0,
)
GOOD = StepFacts(
    step=1,
    learning_rate=1e-6,
    grad_norm=0.5,
    moved=0.99,
    tokens=900,
    entropy=1.0,
    rollout=GOOD_ROLLOUT,
)
NO_ADVANTAGE = replace(GOOD, rollout=replace(GOOD_ROLLOUT, advantaged=0.0, zero_variance=1.0))


def steps(count, base=GOOD, **changes):
    return [replace(base, step=number + 1, **changes) for number in range(count)]


def verdicts(history, run=RUN):
    cause = first_cause(history, run, patience=3)
    return {cause.id: cause.text} if cause else {}


def test_a_good_run_has_no_cause():
    assert verdicts(steps(50)) == {}


def test_a_fault_must_last():
    assert verdicts(steps(2, moved=0.0, grad_norm=0.0)) == {}
    assert set(verdicts(steps(3, moved=0.0, grad_norm=0.0))) == {"parameters-still"}
    assert verdicts([*steps(30, moved=0.0), GOOD]) == {}


STILL = {
    "the learning rate was 0": ({"learning_rate": 0.0}, {}),
    "the optimizer or its loss scaler skipped": ({"skipped": True}, {}),
    "ms-swift drops such updates": ({"skipped": True, "grad_norm": float("nan")}, {}),
    "no completion token is left in the loss": ({"tokens": 0}, {}),
    "the trained modules do not take part": ({"grad_norm": 0.0}, {}),
    "smaller than half a representable step": ({}, {"precision": "bfloat16"}),
    "the optimizer does not hold these parameters": ({}, {}),
}


@pytest.mark.parametrize("text", STILL)
def test_why_parameters_stand_still(text):
    step, run = STILL[text]
    assert text in verdicts(steps(3, moved=0.0, **step), replace(RUN, **run))["parameters-still"]


NO_SIGNAL = {
    "--num_generations 1": ({}, {"num_generations": 1}),
    "all completions are the same text": ({"identical": 1.0}, {}),
    "no two completions of a group were scored by the same rewards": ({"coverage": 0.0}, {}),
    "reward iou returned 0 for 100 %": ({"rewards": (RewardFacts("iou", 1.0, 0.0, 1.0),)}, {}),
    "every reward in every group is equal": ({}, {}),
}


@pytest.mark.parametrize("text", NO_SIGNAL)
def test_why_there_is_no_advantage(text):
    rollout, run = NO_SIGNAL[text]
    step = replace(NO_ADVANTAGE, rollout=replace(NO_ADVANTAGE.rollout, **rollout))
    run = replace(RUN, **run)
    assert text in verdicts(steps(3, step), run)["no-advantage"]
    assert text in verdicts(steps(3, step, moved=0.0), run)["parameters-still"]


def test_nothing_scored_comes_first():
    rewards = (RewardFacts("judge", 0.0, reason="no engine"), RewardFacts("iou", 0.0))
    step = replace(NO_ADVANTAGE, rollout=replace(NO_ADVANTAGE.rollout, rewards=rewards))
    text = verdicts(steps(3, step, moved=0.0))["nothing-scored"]
    assert text == (
        "no completion was scored for 3 steps (reward judge, iou gave no number for any: no engine)"
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"clipped": 1.0}, "every reward in every group is equal; all completions are cut off at the length"),
        (
            {"rewards": (RewardFacts("ext_count", 1.0, 0.0, 1.0, unread=0.71),)},
            "every reward in every group is equal; unread: 71 % of the completions hold no answer",
        ),
    ],
)
def test_what_makes_rewards_equal_is_named(change, text):
    step = replace(NO_ADVANTAGE, rollout=replace(NO_ADVANTAGE.rollout, **change))
    assert text in verdicts(steps(3, step))["no-advantage"]


def test_the_example_follows_the_reason():
    rollout = replace(
        NO_ADVANTAGE.rollout,
        rewards=(RewardFacts("ext_iou", 1.0, 0.0, 1.0),),
        example="row 17 (a.png): completion '[1, 2]'",
    )
    text = verdicts(steps(3, NO_ADVANTAGE, rollout=rollout, moved=0.0))["parameters-still"]
    assert text == (
        "parameters did not move for 3 steps: every reward in every group is equal; reward ext_iou returned 0 "
        "for 100 %; row 17 (a.png): completion '[1, 2]'"
    )


def test_a_few_groups_without_advantage_may_be_chance():
    one_group = replace(NO_ADVANTAGE.rollout, groups=1)
    assert verdicts(steps(7, NO_ADVANTAGE, rollout=one_group)) == {}
    assert "for 8 steps" in verdicts(steps(8, NO_ADVANTAGE, rollout=one_group))["no-advantage"]


def test_float32_copies_that_move_are_movement():
    run = replace(RUN, precision="bfloat16", masters=True)
    assert verdicts(steps(9, moved=0.0, master_moved=0.99), run) == {}
    assert verdicts(steps(9, moved=0.02, master_moved=0.99), run) == {}
    assert set(verdicts(steps(9, moved=0.02), replace(run, masters=False))) == {"coarse-weights"}


def test_dropped_updates_are_counted():
    mixed = [replace(step, skipped=step.step % 3 == 0) for step in steps(30)]
    assert "of the last 20 updates were dropped" in verdicts(mixed)["some-skipped"]
    assert verdicts([*steps(29), replace(GOOD, step=30, skipped=True)]) == {}


WARNINGS = [
    ("cut-off", {"clipped": 0.95}, "95 % of the completions are cut off"),
    ("cut-off", {"clipped": 1.0}, "all completions are cut off"),
    ("unread", {"empty": 0.6}, "60 % of the completions are empty"),
    (
        "unread",
        {"rewards": (RewardFacts("count", 1.0, unread=0.71, reason="'I think it is 4' is no count"),)},
        "unread: 71 % of the completions hold no answer that reward count reads, such as 'I think it is 4'",
    ),
    ("few-varying-groups", {"identical": 0.95}, "in 95 % of the groups all completions are the same text"),
    ("few-varying-groups", {"zero_variance": 0.95}, "in 95 % of the groups every completion got the same"),
    ("unscored", {"rewards": (RewardFacts("iou", 0.5, 0.0, 0.5),)}, "iou scored only 50 %"),
]


@pytest.mark.parametrize(("name", "change", "text"), WARNINGS)
def test_warnings(name, change, text):
    assert text in verdicts(steps(20, rollout=replace(GOOD_ROLLOUT, **change)))[name]


def test_completions_that_are_cut_off_are_named_at_the_sixth_step():
    rollout = replace(GOOD_ROLLOUT, clipped=1.0)
    assert verdicts(steps(5, rollout=rollout)) == {}
    assert set(verdicts(steps(6, rollout=rollout))) == {"cut-off"}


def test_a_run_without_a_gradient_is_known_without_our_figures():
    assert verdicts(steps(5, moved=None, grad_norm=0.0)) == {
        "parameters-still": "the gradient was 0 for 5 steps"
    }


def test_a_reward_of_ones_own_is_not_for_groups_that_it_leaves_out_whole():
    nan = math.nan
    assert meant_scores([1.0, 0.0, nan, nan, 0.5, nan], 2) == [1.0, 0.0, 0.5, nan]
    assert meant_scores([nan, nan, nan, nan], 2) == [nan] * 4
    assert reward_facts("mine", meant_scores([1.0, 0.0, nan, nan], 2)).scored == 1


def test_answers_that_are_cut_off_before_their_form_are_not_called_unread():
    unread = (RewardFacts("iou", 1.0, unread=1.0),)
    history = steps(5, rollout=replace(GOOD_ROLLOUT, rewards=unread, clipped=1.0))
    assert verdicts(history) == {}
    assert set(verdicts([*history, replace(history[-1], step=6)])) == {"cut-off"}
    assert set(verdicts(steps(5, rollout=replace(GOOD_ROLLOUT, rewards=unread)))) == {"unread"}


def test_several_rewards_that_each_lack_their_rows_in_some_batches_are_not_told_of():
    def without(name, step):
        rewards = tuple(RewardFacts(each, float(each != name)) for each in ("iou", "count"))
        return replace(GOOD, step=step, rollout=replace(GOOD_ROLLOUT, rewards=rewards))

    in_turn = [without(name, step) for step, name in enumerate(["iou", "count"] * 4)]
    assert verdicts(in_turn) == {}
    assert "reward iou scored only 0 %" in verdicts([without("iou", step) for step in range(3)])["unscored"]


def test_the_monitor_tells_each_cause_once_and_asks_to_stop_at_twice_its_patience():
    monitor = LearningMonitor(RUN, patience=3)
    told = [monitor.add(step) for step in steps(6, moved=0.0, grad_norm=0.0)]
    assert [bool(cause) for cause in told] == [False, False, True, False, False, False]
    assert monitor.should_stop
    assert monitor.cause.dead
    assert monitor.add(replace(GOOD, step=7)) is None
    assert monitor.cause is None


def test_a_run_shorter_than_the_patience_is_judged_at_its_end():
    monitor = LearningMonitor(RUN, patience=3)
    monitor.add(replace(GOOD, moved=0.0, learning_rate=0.0))
    assert monitor.at_end().id == "parameters-still"
    healthy = LearningMonitor(RUN, patience=3)
    healthy.add(GOOD)
    assert healthy.at_end() is None


shares = st.one_of(st.none(), st.floats(0, 1))
facts = st.builds(
    StepFacts,
    step=st.integers(1, 100),
    learning_rate=st.one_of(st.none(), st.floats(0, 1)),
    grad_norm=st.one_of(st.none(), st.floats()),
    skipped=st.booleans(),
    moved=shares,
    master_moved=shares,
    tokens=st.one_of(st.none(), st.integers(0, 10)),
    rollout=st.builds(
        RolloutFacts,
        groups=st.integers(0, 9),
        rewards=st.lists(st.builds(RewardFacts, name=st.just("r"), scored=st.floats(0, 1))).map(tuple),
        advantaged=shares,
        zero_variance=shares,
        identical=shares,
        clipped=shares,
        empty=shares,
    ),
)


@given(st.lists(facts, max_size=20), st.integers(1, 4))
def test_any_history_can_be_judged(history, patience):
    cause = first_cause(history, RUN, patience)
    assert cause is None or (cause.text and cause.steps)


def test_reward_facts_leave_out_what_is_not_scored():
    found = reward_facts("r", [1.0, None, float("nan"), float("inf"), 1.0, 0.0])
    assert found.scored == 0.5
    assert (found.commonest, found.commonest_share) == (1.0, 2 / 3)
    assert reward_facts("r", [None]).commonest is None


def test_shares_of_completions():
    assert identical_share(["a", "a", "b", "c"], 2) == 0.5
    assert identical_share(["a"], 0) is None
    assert empty_share([" \n", "a"]) == 0.5
    assert empty_share([]) is None
