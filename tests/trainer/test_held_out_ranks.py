"""Evaluations on held-out rows on two ranks."""

import json
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.watch.held_out import read_evaluations
from tests.forked import run_ranks
from tests.trainer.runs import REWARD

FALLS = Path(__file__).with_name("falls_at_once.py")
GLOO = Path(__file__).parents[1] / "e2e" / "gloo_for_zero3.py"
RUN = {
    "max_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 1,
    "per_device_eval_batch_size": 2,
    "save_strategy": "steps",
    "save_steps": 1,
    "save_only_model": True,
    "save_total_limit": 1,
    "learning_rate": 0,
}


@pytest.fixture
def arguments(tiny_qwen, digits, tmp_path):
    """`arguments(...)` of a run with seven validation rows."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(digits.test.read_text().splitlines(keepends=True)[:7]))

    def arguments(deepspeed=None, plugins=(), **overrides):
        return testing.grpo_arguments(
            tiny_qwen,
            digits.train,
            tmp_path / "out",
            reward_funcs="even_characters",
            external_plugins=[*([GLOO] if deepspeed else []), REWARD, plugin_file(), *plugins],
            deepspeed=deepspeed,
            val_dataset=rows,
            **{**RUN, **overrides},
        )

    return arguments


@pytest.mark.two_ranks
@pytest.mark.parametrize("deepspeed", [None, pytest.param("zero3", marks=pytest.mark.slow)])
def test_two_ranks_score_each_row_once_and_agree_on_the_best(deepspeed, arguments, tmp_path):
    result = run_ranks("rlhf", arguments(deepspeed), timeout=280)
    version = testing.newest_version(tmp_path / "out")
    evaluations = read_evaluations(version)
    assert [evaluation.step for evaluation in evaluations] == [1, 2]
    assert [len(evaluation.scores["reward"]) for evaluation in evaluations] == [7, 7]
    # Nothing is learned, so greedy answers stay what they were.
    assert evaluations[0].scores == evaluations[1].scores
    assert (version / "checkpoint-2").is_dir(), "the last of equal ones is the best"
    assert f"best checkpoint: {version}/checkpoint-2" in result.tail


@pytest.mark.slow
@pytest.mark.two_ranks
@pytest.mark.parametrize("deepspeed", [None, "zero3"])
def test_two_ranks_save_and_stop_together(deepspeed, arguments, tmp_path):
    variables = {"SWIFT_GRPO_EXT_HELD_OUT_STOP": "1"}
    run = {"plugins": [FALLS], "max_steps": 4, "save_steps": 100, "gradient_accumulation_steps": 2}
    run_ranks("rlhf", arguments(deepspeed, **run), variables, timeout=280)
    version = testing.newest_version(tmp_path / "out")
    assert [evaluation.step for evaluation in read_evaluations(version)] == [1]
    assert json.loads((version / "checkpoint-1/trainer_state.json").read_text())["global_step"] == 1
    assert [path.name for path in version.glob("checkpoint-*")] == ["checkpoint-1"]
