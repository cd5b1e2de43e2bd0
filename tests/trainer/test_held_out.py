"""Evaluations on held-out rows in real runs: fixed rows, greedy answers, the best checkpoint, equal training."""

import json

import pytest
import torch
from safetensors.torch import load_file
from swift.rollout.multi_turn import multi_turns

from swift_grpo_ext import testing
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.watch.held_out import read_evaluations
from tests.trainer.crops import Crops
from tests.trainer.runs import figures, told

RUN = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
SAVING = {"save_strategy": "steps", "save_steps": 1, "save_only_model": True, "save_total_limit": 2}


@pytest.fixture(scope="module")
def rows(digits, tmp_path_factory):
    """Seven validation rows: no multiple of a batch of four."""
    path = tmp_path_factory.mktemp("rows") / "held_out.jsonl"
    path.write_text("".join(digits.test.read_text().splitlines(keepends=True)[:7]))
    return path


NO_REPORT = {"DISABLE": "callbacks.report"}


def evaluations(output):
    return read_evaluations(testing.newest_version(output))


def logged(output):
    return [row for row in testing.read_logging(output) if "eval_reward" in row]


def test_each_row_is_scored_once_and_greedily(tiny_qwen, digits, rows, tmp_path):
    with told() as messages:
        options = {"learning_rate": 0, "beta": 0, **RUN, **SAVING, "save_total_limit": 1, "save_steps": 4}
        figures(tiny_qwen, digits.train, tmp_path, NO_REPORT, val_dataset=rows, **options)
    found = evaluations(tmp_path)
    assert [one.step for one in found] == [1, 2, 3, 4]
    assert [len(one.scores["reward"]) for one in found] == [7] * 4
    # Nothing is learned, so the likeliest answers stay what they were; sampled ones would not.
    assert len({one.scores["reward"] for one in found}) == 1
    assert found[0].scores["reward"] == found[0].scores["even_characters"]
    assert logged(tmp_path)[0]["eval_reward"] == pytest.approx(found[0].interval().mean, abs=1e-6)
    assert logged(tmp_path)[0]["eval_reward_low"] == pytest.approx(found[0].interval().low, abs=1e-6)
    assert "eval_reward_change" in logged(tmp_path)[1]
    assert any("7 of 7 validation rows (seed 42), answered greedily" in text for text in messages)
    # Of equal evaluations the last is the best, and saved as such.
    assert [folder.name for folder in testing.newest_version(tmp_path).glob("checkpoint-*")] == [
        "checkpoint-4"
    ]
    assert any("checkpoint-4 (step 4, held-out reward" in text for text in messages)


TURNS = {"multi_turn_scheduler": "crops", "max_turns": 3, "max_length": 1024}


@pytest.mark.parametrize(
    "turns", [{}, pytest.param(TURNS, marks=pytest.mark.slow)], ids=["one turn", "three turns"]
)
def test_training_is_what_it_is_without(turns, tiny_qwen, digits, rows, monkeypatch, tmp_path):
    monkeypatch.setitem(multi_turns, "crops", Crops)
    options = {**turns, "save_strategy": "steps", "save_steps": 4, "save_only_model": True}
    without = figures(tiny_qwen, digits.train, tmp_path / "without", max_steps=4, **options)
    with_rows = figures(
        tiny_qwen, digits.train, tmp_path / "with", NO_REPORT, val_dataset=rows, **RUN, **options
    )
    assert len(evaluations(tmp_path / "with")) == 4
    for name in ("loss", "grad_norm", "kl", "reward"):
        assert with_rows[name] == without[name], name
    first, second = (
        load_file(testing.newest_version(tmp_path / name) / "checkpoint-4/model.safetensors")
        for name in ("without", "with")
    )
    assert all(torch.equal(first[name], second[name]) for name in first | second), "parameters"


def test_the_best_checkpoint_survives_and_is_named(tiny_qwen, digits, rows, tmp_path):
    with told() as messages:
        figures(tiny_qwen, digits.train, tmp_path, NO_REPORT, val_dataset=rows, **RUN, **SAVING)
    found = evaluations(tmp_path)
    best = max(found, key=lambda one: (one.interval().mean, one.step))
    folder = testing.newest_version(tmp_path) / f"checkpoint-{best.step}"
    assert (folder / "config.json").is_file()
    assert any(f"best checkpoint: {folder} (step {best.step}, held-out reward" in text for text in messages)


def test_a_best_step_without_a_checkpoint_is_saved(tiny_qwen, digits, rows, tmp_path):
    saving = {**SAVING, "save_steps": 3}
    figures(
        tiny_qwen, digits.train, tmp_path, NO_REPORT, val_dataset=rows, **{**RUN, "max_steps": 3}, **saving
    )
    found = evaluations(tmp_path)
    best = max(found, key=lambda one: (one.interval().mean, one.step))
    assert (testing.newest_version(tmp_path) / f"checkpoint-{best.step}").is_dir()


@pytest.mark.parametrize("metric", ["eval_reward", "even_characters", "rewards/even_characters/mean"])
def test_the_best_is_chosen_by_a_reward_as_it_is_typed(tiny_qwen, digits, rows, tmp_path, metric):
    run = {**RUN, "max_steps": 2}
    figures(
        tiny_qwen,
        digits.train,
        tmp_path,
        NO_REPORT,
        val_dataset=rows,
        metric_for_best_model=metric,
        **run,
        **SAVING,
    )
    state = json.loads((testing.newest_version(tmp_path) / "checkpoint-2/trainer_state.json").read_text())
    means = [one.interval().mean for one in evaluations(tmp_path)]
    assert state["best_metric"] == pytest.approx(max(means), abs=1e-6)


def test_a_best_by_loss_is_warned_of(tiny_qwen, digits, rows, tmp_path):
    with told() as messages:
        figures(
            tiny_qwen,
            digits.train,
            tmp_path,
            val_dataset=rows,
            metric_for_best_model="loss",
            **{**RUN, "max_steps": 1},
        )
    assert any("which says nothing about its answers" in text for text in messages)


@pytest.mark.parametrize(
    ("typed", "cure"), [("eval_rewrad", "eval_reward"), ("even_charcters", "even_characters")]
)
def test_a_misspelt_reward_is_refused_before_training(tiny_qwen, digits, rows, tmp_path, typed, cure):
    with pytest.raises(RefusedError, match=f"{typed}] -> --metric_for_best_model {cure}$"):
        figures(tiny_qwen, digits.train, tmp_path, val_dataset=rows, metric_for_best_model=typed, **RUN)


def test_a_best_with_the_lowest_reward_is_refused(tiny_qwen, digits, rows, tmp_path):
    with pytest.raises(RefusedError, match="--greater_is_better false] -> leave it out"):
        figures(tiny_qwen, digits.train, tmp_path, val_dataset=rows, greater_is_better=False, **RUN)


def test_a_reward_that_gets_no_better_stops_the_run(tiny_qwen, digits, rows, tmp_path):
    """Nothing is learned, so no evaluation is better than the first."""
    with told() as messages:
        figures(
            tiny_qwen,
            digits.train,
            tmp_path,
            {"HELD_OUT_STOP": "2"},
            val_dataset=rows,
            gradient_accumulation_steps=2,  # it never stops in the middle of them
            learning_rate=0,
            **{**RUN, "max_steps": 5},
            **{**SAVING, "save_steps": 100},
        )
    assert [one.step for one in evaluations(tmp_path)] == [1, 2, 3]
    assert (testing.newest_version(tmp_path) / "checkpoint-3").is_dir()
    (line,) = [text for text in messages if "saving and stopping" in text]
    assert "at step 3: held-out reward has not been better than " in line
    assert line.endswith("of step 1 for 2 evaluations")
    assert any("the best of 3 evaluations)" in text for text in messages)


def test_several_answers_are_sampled_where_they_are_asked_for(tiny_qwen, digits, rows, tmp_path):
    run = {**RUN, "max_steps": 1, "num_generations_eval": 2}
    with told() as messages:
        figures(tiny_qwen, digits.train, tmp_path, NO_REPORT, val_dataset=rows, **run)
    (found,) = evaluations(tmp_path)
    assert len(found.scores["reward"]) == 7
    assert any("2 sampled answers each" in text for text in messages)


def test_a_resumed_run_goes_on_with_the_curve(tiny_qwen, digits, rows, tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 1}
    figures(
        tiny_qwen, digits.train, tmp_path / "first", val_dataset=rows, **{**RUN, "max_steps": 2}, **saving
    )
    before = evaluations(tmp_path / "first")
    checkpoint = testing.newest_version(tmp_path / "first") / "checkpoint-2"
    figures(
        tiny_qwen,
        digits.train,
        tmp_path / "second",
        NO_REPORT,
        val_dataset=rows,
        resume_from_checkpoint=checkpoint,
        **{**RUN, "max_steps": 3},
        **saving,
    )
    after = evaluations(tmp_path / "second")
    assert [one.step for one in after] == [1, 2, 3]
    assert after[:2] == before
    assert len({one.rows for one in after}) == 1


def test_it_can_be_turned_off(tiny_qwen, digits, rows, tmp_path):
    switches = {"DISABLE": "trainer.held_out,callbacks.report"}
    run = {**RUN, "max_steps": 1}
    with told() as messages:
        figures(tiny_qwen, digits.train, tmp_path, switches, val_dataset=rows, **run)
    assert evaluations(tmp_path) == []
    assert "eval_reward" in logged(tmp_path)[0]
    assert any("held_out off (switched off" in text for text in messages)


@pytest.mark.parametrize("silent", [True, False])
def test_a_step_prints_one_line_and_logs_everything(tiny_qwen, digits, rows, tmp_path, capsys, silent):
    run = {**RUN, "max_steps": 2, "disable_tqdm": silent}
    figures(tiny_qwen, digits.train, tmp_path, NO_REPORT, val_dataset=rows, **run)
    printed = capsys.readouterr()
    lines = [line for line in (printed.out + printed.err).splitlines() if line.strip().startswith("step ")]
    assert [line.split()[1] for line in lines] == ["1/2", "2/2"]
    assert all(len(line) <= 120 for line in lines)
    assert "held-out" in lines[1]
    assert "'grad_norm'" not in printed.out + printed.err
    assert "'eval_reward'" not in printed.out + printed.err
    assert "trained for" in printed.out + printed.err
    assert all("grad_norm" in row for row in testing.read_logging(tmp_path) if "loss" in row)


@pytest.mark.slow
def test_few_figures_of_our_own_are_logged(tiny_qwen, digits, tmp_path):
    """All that ms-swift's own trainer logs, and at most 15 more."""
    run = {"max_steps": 2}
    figures(tiny_qwen, digits.train, tmp_path / "few", {"CONSOLE": "line"}, **run)
    figures(tiny_qwen, digits.train, tmp_path / "all", {"CONSOLE": "figures"}, **run)
    few, every = (testing.read_logging(tmp_path / name)[1] for name in ("few", "all"))
    own = {
        name for name in every if name.startswith(("watch/", "seconds/", "images/", "unscored/", "unread/"))
    }
    own |= {"bad_rows", "reward_coverage", "dropped_groups", "completions/with_placeholder"}
    own |= {name for name in every if name.startswith("rewards/") and not name.endswith(("/mean", "/std"))}
    assert set(every) - own <= set(few)
    assert len(own & set(few)) + len(set(few) - set(every)) <= 15


@pytest.mark.slow
def test_all_figures_are_printed_where_that_is_asked_for(tiny_qwen, digits, tmp_path, capsys):
    figures(tiny_qwen, digits.train, tmp_path, {"CONSOLE": "all"}, max_steps=1, disable_tqdm=True)
    assert "'grad_norm'" in capsys.readouterr().out
