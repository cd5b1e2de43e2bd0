"""Evaluations on held-out rows on two ranks."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.watch.held_out import read_evaluations
from tests.trainer.runs import REWARD

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


@pytest.mark.slow
@pytest.mark.two_ranks
def test_two_ranks_score_each_row_once_and_agree_on_the_best(tiny_qwen, digits, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(digits.test.read_text().splitlines(keepends=True)[:7]))
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path / "out",
        reward_funcs="even_characters",
        external_plugins=[REWARD, plugin_file()],
        val_dataset=rows,
        **RUN,
    )
    switches = {"SWIFT_GRPO_EXT_HELD_OUT_SHARE": "1"}
    result = testing.run_swift("rlhf", arguments, switches, ranks=2, timeout=280)
    version = testing.newest_version(tmp_path / "out")
    evaluations = read_evaluations(version)
    assert [evaluation.step for evaluation in evaluations] == [1, 2]
    assert [len(evaluation.scores["reward"]) for evaluation in evaluations] == [7, 7]
    # Nothing is learned, so greedy answers stay what they were.
    assert evaluations[0].scores == evaluations[1].scores
    assert (version / "checkpoint-1").is_dir(), "the first of equal ones is the best"
    assert f"best checkpoint: {version}/checkpoint-1" in result.tail
