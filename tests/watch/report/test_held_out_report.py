"""Held-out rewards in the report: verdict, best checkpoint, and the first curve."""

import json

from swift_grpo_ext.watch.held_out import Evaluation, append
from swift_grpo_ext.watch.report import write_report
from swift_grpo_ext.watch.report.run import read_run
from swift_grpo_ext.watch.report.verdict import judge
from tests.watch.report.made_up_run import data_of


def run_with(folder, right):
    """A run of ten steps for each evaluation, of whose 40 held-out rows so many were right."""
    rows = [
        {"loss": 0.1, "grad_norm": 1.0, "reward": 0.3 + 0.01 * step, "completions/mean_length": 4.0}
        | {"global_step/max_steps": f"{step}/{10 * len(right)}"}
        for step in range(1, 10 * len(right) + 1)
    ]
    (folder / "logging.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for number, count in enumerate(right, 1):
        scores = tuple(float(row < count) for row in range(40))
        append(folder, Evaluation(10 * number, {"reward": scores}, 1.0, "40 rows"))
    return read_run(folder)


def test_the_verdict_names_the_best_checkpoint(tmp_path):
    (tmp_path / "checkpoint-20").mkdir()
    verdict = judge(run_with(tmp_path, [10, 30, 28]))
    assert verdict.level == "good"
    assert verdict.headline.startswith("It learns: the held-out reward rose from 0.25 to 0.7, by 0.45 (0.289")
    (best,) = [reason for reason in verdict.reasons if "eld-out" in reason]
    assert best.endswith(f"at step 20: {tmp_path / 'checkpoint-20'}.")


def test_the_verdict_is_by_the_reward_that_chose_the_best(tmp_path):
    """--metric_for_best_model names one of the rewards."""
    run_with(tmp_path, [10, 10])
    (tmp_path / "args.json").write_text('{"metric_for_best_model": "place"}')
    for step, right in ((30, 20), (40, 5)):
        place = tuple(float(row < right) for row in range(40))
        append(tmp_path, Evaluation(step, {"reward": (0.5,) * 40, "place": place}, 1.0, "40 rows"))
    reasons = judge(read_run(tmp_path)).reasons
    assert any(reason.startswith("Best held-out place 0.5") and "at step 30" in reason for reason in reasons)


def test_a_fall_is_worse_than_a_rising_training_reward(tmp_path):
    verdict = judge(run_with(tmp_path, [20, 35, 8, 6, 5]))
    assert verdict.level == "bad"
    assert verdict.headline.startswith("It gets worse: the held-out reward fell from 0.5 to 0.125, by -0.375")
    assert any("no checkpoint of that step is left here" in reason for reason in verdict.reasons)


def test_held_out_rows_decide_where_training_rewards_say_nothing(tmp_path):
    verdict = judge(run_with(tmp_path, [20, 20]))
    assert verdict.headline.startswith("No clear change: the held-out reward went from 0.5 to 0.5")


def test_the_page_has_each_evaluation_with_its_interval(tmp_path):
    run_with(tmp_path, [10, 30])
    first, second = data_of(write_report(tmp_path))["runs"][0]["held_out"]
    assert (first["step"], second["step"]) == (10, 20)
    assert first["low"] < first["mean"] == 0.25 < first["high"]


def test_each_reward_has_its_held_out_curve(tmp_path):
    """A total that rises hides a reward that falls."""
    run_with(tmp_path, [10])
    (tmp_path / "held_out.jsonl").unlink()
    for step, right, long in ((10, 30, 5), (20, 10, 40)):
        scores = {"right": tuple(float(row < right) for row in range(40))}
        scores |= {"long": tuple(float(row < long) for row in range(40))}
        total = tuple(map(sum, zip(*scores.values(), strict=True)))
        append(tmp_path, Evaluation(step, {"reward": total, **scores}, 1.0, "40 rows"))
    means = {}
    for score in data_of(write_report(tmp_path))["runs"][0]["held_out"]:
        means.setdefault(score["reward"], []).append(score["mean"])
    assert means == {"reward": [0.875, 1.25], "right": [0.75, 0.25], "long": [0.125, 1.0]}
