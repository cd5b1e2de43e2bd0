"""The host's --deepspeed flag takes our preset names."""

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file


def test_two_ranks_train_with_a_preset(tiny_qwen, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path,
        reward_funcs="even_characters",
        external_plugins=[plugin_file(), __file__.replace("test_presets", "length_reward")],
        deepspeed="ext_zero2",
    )
    testing.run_swift("rlhf", arguments, ranks=2, timeout=280)
    rows = [row for row in testing.read_logging(tmp_path) if "loss" in row]
    assert len(rows) == 2
    assert all(row["grad_norm"] > 0 for row in rows)
