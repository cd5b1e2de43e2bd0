"""The line that a step prints."""

from swift_grpo_ext.watch.step_line import log_line, step_line

LOGS = {
    "loss": 0.0,
    "grad_norm": 1.5,
    "reward": 0.5125,
    "reward_std": 0.31,
    "completions/mean_length": 143.4,
    "completions/clipped_ratio": 0.031,
    "kl": 0.00213,
    "entropy/mean": 0.4,
    "step_time": 12.34,
    "remaining_time": "36m 51s",
    "global_step/max_steps": "120/300",
}


def test_everything_that_matters_is_in_the_line():
    assert step_line(LOGS, held_out=0.776) == (
        "step 120/300  reward 0.512 ± 0.310  held-out 0.776  length 143  cut off 3 %  kl 0.0021  12.3 s  36m 51s left"
    )


def test_a_narrow_terminal_gets_the_first_of_it():
    line = step_line(LOGS, held_out=0.776, width=80)
    assert len(line) <= 80
    assert line.startswith("step 120/300  reward 0.512 ± 0.310  held-out 0.776")


def test_without_a_reference_it_is_the_entropy():
    assert "entropy 0.40" in step_line({name: value for name, value in LOGS.items() if name != "kl"})


def test_each_reward_of_a_sum_is_named_where_there_is_room():
    logs = {**LOGS, "rewards/bar_height/mean": 0.79, "rewards/ext_iou/mean": 0.05}
    line = step_line(logs, width=200)
    assert line.startswith("step 120/300  reward 0.512 ± 0.310  bar_height 0.79  ext_iou 0.05  length 143")
    assert "bar_height" not in step_line(logs, width=90)
    assert "ext_iou" not in step_line({**LOGS, "rewards/ext_iou/mean": 0.05}, width=200)


def test_rewards_one_by_one_are_worth_more_than_kl_and_length_where_all_do_not_fit():
    logs = {**LOGS, "rewards/near_count/mean": 0.79, "rewards/ext_choice/mean": 0.05, "remaining_time": "1m"}
    line = step_line(logs, held_out=0.776)
    assert line.startswith(
        "step 120/300  reward 0.512 ± 0.310  near_count 0.79  ext_choice 0.05  held-out 0.776"
    )
    assert line.endswith("cut off 3 %  12.3 s  1m left")


def test_the_one_reward_of_several_that_a_batch_has_rows_of_is_named():
    logs = {**LOGS, "rewards/bar_height/mean": 0.79}
    assert "reward 0.512 ± 0.310  bar_height 0.79  length" in step_line(logs, several=True)


def test_a_step_in_which_nothing_was_scored_has_a_line():
    logs = {name: value for name, value in LOGS.items() if not name.startswith("reward")}
    assert step_line(logs).startswith("step 120/300  reward -  length 143  cut off 3 %")


def test_other_logs_have_no_line():
    assert step_line({"eval_reward": 0.5, "global_step/max_steps": "1/2"}) == ""
    assert step_line({"train_runtime": 3.0}) == ""
    assert step_line({"reward": 1.0}) == ""


def test_every_width_holds_the_line():
    for width in range(20, 140):
        assert len(step_line(LOGS, held_out=0.776, width=width)) <= max(width, len("step 120/300"))


def test_what_is_no_step_has_a_line_too():
    assert log_line({"eval_reward": 0.5, "eval_loss": 0.01}) == "evaluation  reward 0.5  loss 0.01"
    assert log_line({"eval_reward": 0.5}, held_out=0.5) == "", "its figures are told with their interval"
    assert log_line(LOGS, 0.776) == step_line(LOGS, 0.776)
    assert log_line({"epoch": 1.0}) == ""


def test_longest_figures_fit():
    logs = {**LOGS, "reward": -12345.678, "reward_std": 99999.9, "global_step/max_steps": "1000000/1000000"}
    assert len(step_line(logs, held_out=-99999.9)) <= 120
