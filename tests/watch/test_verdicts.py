"""Each way in which a run learns nothing, injected into a real run, gets its verdict; a healthy run none."""

import math
from importlib.metadata import requires

import pytest

from swift_grpo_ext.errors import DeadRunError, RefusedError, RewardError
from swift_grpo_ext.watch import watch
from swift_grpo_ext.watch.report.run import read_run
from swift_grpo_ext.watch.report.verdict import judge
from swift_grpo_ext.watch.watch import NOTHING_SCORED, UNSCORED_STEPS
from tests.trainer.runs import told


def test_a_healthy_run_gets_no_verdict(watched_run):
    run = watched_run("Good", max_completion_length=64, max_steps=5)
    assert run.verdicts == []
    assert all(step["watch/moved"] == 1 and step["watch/skipped"] == 0 for step in run.steps)


def test_b3_a_constant_reward_is_named_with_its_value_and_a_row(watched_run):
    run = watched_run("Constant", weight_decay=0)
    text = run.verdict("parameters-still")
    assert text.startswith("parameters did not move for 4 steps: every reward in every group is equal; ")
    assert "reward test_Constant returned 0 for 100 %" in text
    assert "row " in text
    assert "gold '" in text


@pytest.mark.slow
def test_b3_with_weight_decay_parameters_move_and_still_nothing_is_learned(watched_run):
    run = watched_run("Constant", weight_decay=0.1)
    assert all(step["watch/moved"] > 0.5 for step in run.steps)
    assert "only weight decay and momentum move the parameters" in run.verdict("no-advantage")


@pytest.mark.slow
def test_b3_a_reward_that_scores_nothing_is_named(watched_run, capfd):
    with pytest.raises(SystemExit) as ended:
        watched_run("Missing", weight_decay=0)
    assert ended.value.code == NOTHING_SCORED
    said = capfd.readouterr().err
    assert "the run ends at step 4: no completion was scored for 4 steps (reward test_Missing gave no" in said


def test_a_run_in_which_nothing_scores_ends_before_its_last_step(watched_run, capfd, monkeypatch):
    assert (UNSCORED_STEPS, NOTHING_SCORED) == (20, 65)
    monkeypatch.setattr(watch, "UNSCORED_STEPS", 5)
    with pytest.raises(SystemExit) as ended:
        watched_run("Missing", max_steps=30, max_completion_length=2)
    assert ended.value.code == NOTHING_SCORED
    assert "the run ends at step 5: no completion was scored for 5 steps" in capfd.readouterr().err


@pytest.mark.slow
def test_b3_a_reward_that_differs_by_rounding_only(watched_run):
    """Adam makes whole steps of it: every parameter moves, in a direction that means nothing."""
    run = watched_run("Noise", weight_decay=0)
    assert all(step["watch/moved"] > 0.5 and step["watch/advantaged"] == 0 for step in run.steps)
    text = run.verdict("no-advantage")
    assert "every reward in every group is equal; " in text
    assert "reward test_Noise returned 0 for 100 %" in text


def test_a_learning_rate_of_0_is_not_blamed_on_a_warmup(watched_run):
    text = watched_run("Good", learning_rate=0).verdict("parameters-still")
    assert text == "parameters did not move for 3 steps: the learning rate is 0: give another --learning_rate"


def test_completions_that_are_all_cut_off_and_left_out(watched_run):
    run = watched_run("Good", weight_decay=0, max_completion_length=2, overlong_filter=True)
    assert "no completion token is left in the loss" in run.verdict("parameters-still")


def test_a_run_that_trains_nothing_is_refused(watched_run):
    with pytest.raises(RefusedError, match="no parameter is trained"):
        watched_run("Good", freeze_llm=True, freeze_vit=True, freeze_aligner=True)


@pytest.mark.slow
def test_a_temperature_of_0_is_named(watched_run):
    text = watched_run("Good", weight_decay=0, temperature=0).verdict("parameters-still")
    assert "logits are divided by a temperature of 0" in text


def test_b3_identical_completions(watched_run):
    run = watched_run("Good", weight_decay=0, top_k=1)
    assert "all completions are the same text (temperature 0.9)" in run.verdict("parameters-still")


def test_b2_weights_of_16_bits_without_float32_copies(watched_run):
    run = watched_run("Good", torch_dtype="bfloat16", learning_rate=1e-6)
    assert "bfloat16 weights are updated without float32 copies" in run.verdict("coarse-weights")
    assert all(0 < step["watch/moved"] < 0.1 for step in run.steps)


@pytest.mark.slow
def test_b2_the_same_in_float32_moves_everything(watched_run):
    run = watched_run("Good", learning_rate=1e-6)
    assert all(step["watch/moved"] > 0.9 for step in run.steps)
    assert "coarse-weights" not in {event["id"] for event in run.verdicts}


@pytest.mark.slow
def test_b4_an_infinite_reward_is_named_and_parameters_move(watched_run, capfd):
    run = watched_run("OneInfinite")
    line = "reward 'test_OneInfinite' does not score a row: the score is NaN or infinite [completion 0 of"
    assert line in capfd.readouterr().err
    assert all(step["watch/moved"] > 0 for step in run.steps)


def test_b5_the_only_step_runs_at_learning_rate_0(watched_run):
    run = watched_run("Good", max_steps=1, warmup_ratio=None, lr_scheduler_type=None, warmup_steps=1)
    assert "the learning rate was 0; with any warmup" in run.verdict("parameters-still")


@pytest.mark.slow
def test_b6_loss_and_kl_are_the_same_in_a_dead_and_in_a_healthy_run(watched_run):
    """Both log a loss of 0 and no KL; the monitors tell them apart, and the report says what counts."""
    healthy, dead = watched_run("Good"), watched_run("Constant", weight_decay=0)
    for run in (healthy, dead):
        assert all(abs(step["loss"]) < 1e-6 and "kl" not in step for step in run.steps)
        assert "Loss and KL prove nothing here" in " ".join(judge(read_run(run.folder)).reasons)
    assert healthy.verdicts == []
    assert {step["watch/moved"] for step in healthy.steps} == {1}
    assert {step["watch/moved"] for step in dead.steps} == {0}


@pytest.mark.slow
def test_b7_a_reward_that_leaves_some_out(watched_run):
    run = watched_run("OneMissing")
    assert "reward test_OneMissing scored only 75 % of the completions" in run.verdict("unscored")


def test_b8_one_score_for_the_batch_is_refused(watched_run):
    with pytest.raises(RewardError, match=r"returned 1 scores for \d completions"):
        watched_run("OfTheBatch")


def test_b9_a_reward_that_always_raises(watched_run):
    with pytest.raises(RewardError, match=r"KeyError\('boxes'\).*completions failed"):
        watched_run("Raises", weight_decay=0)


def test_b11_a_reward_that_scores_nothing_is_named_at_once(watched_run):
    with told() as messages, pytest.raises(SystemExit):
        watched_run("Missing", weight_decay=0)
    (line,) = [text for text in messages if "scored none of the" in text]
    assert "reward 'test_Missing' scored none of the 8 completions of step 1 (it returned None or NaN" in line


def test_b10_a_metric_that_is_not_finite_leaves_the_log_whole(watched_run):
    run = watched_run("Good", callbacks="test_nan_metric", logging_steps=2)
    assert run.verdicts == []
    assert [step["completions/entropy_of_test"] for step in run.steps] == [2, 2, 2]  # steps 1, 2 and 4
    assert all(math.isfinite(step[name]) for step in run.steps for name in ("loss", "grad_norm", "reward"))


def test_b12_what_the_host_forgets_to_ask_for_is_asked_for():
    assert any(line.startswith("msgspec") for line in requires("swift-grpo-ext"))


@pytest.mark.slow
def test_b13_dropout_of_lora_is_off_and_the_ratio_is_1(watched_run):
    run = watched_run("Good", tuner_type="lora", lora_dropout=0.05, epsilon=1e-6, max_completion_length=64)
    assert run.verdicts == []
    assert all(step["clip_ratio/region_mean"] == 0 for step in run.steps)
    assert all(step["watch/moved"] > 0 for step in run.steps)


@pytest.mark.slow
def test_a_dead_run_is_stopped_when_asked(watched_run):
    with pytest.raises(DeadRunError, match="every reward in every group is equal"):
        watched_run("Constant", env={"ON_DEAD": "stop"}, weight_decay=0, max_steps=40)
