"""Two ranks: dynamic sampling hands completions from rank to rank, and each keeps its own reward."""

from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from tests.forked import run_ranks
from tests.trainer.odd_digits_reward import EQUAL, score

REWARD = Path(__file__).with_name("odd_digits_reward.py")


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.two_ranks
def test_completions_of_both_ranks_keep_their_rewards(tiny_qwen, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path,
        external_plugins=[REWARD, plugin_file()],
        reward_funcs="odd_digits",
        dynamic_sample=True,
        max_resample_times=8,
        scale_rewards="none",
        per_device_train_batch_size=8,
        max_steps=1,
        seed=1,
    )
    result = run_ranks("rlhf", arguments, timeout=280)
    rows = testing.read_completions(tmp_path)
    assert len(rows) == 16
    assert EQUAL in result.tail
    assert "the step takes the first batch" not in result.tail
    assert [row["odd_digits"] for row in rows] == pytest.approx(
        [score(row["completion"], row["solution"]) for row in rows]
    )
    groups = [rows[start : start + 4] for start in range(0, 16, 4)]
    assert len({row["images"][0] for row in rows}) > 1
    for group in groups:
        scores = [row["odd_digits"] for row in group]
        assert len({row["images"][0] for row in group}) == 1
        assert len(set(scores)) > 1
        mean = sum(scores) / 4
        assert [row["advantages"] for row in group] == pytest.approx([one - mean for one in scores], abs=1e-6)
