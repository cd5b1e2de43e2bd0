"""With all parts on, a run that has nothing to heal is the stock run."""

from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file

SAME = ("loss", "grad_norm", "kl", "reward", "reward_std")


@pytest.fixture(scope="module")
def logs(tiny_qwen_stock, digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("equals_stock")
    rewards = Path(__file__).with_name("length_reward.py")
    found = {}
    for name, plugins in (("stock", [rewards]), ("ours", [rewards, plugin_file()])):
        arguments = testing.grpo_arguments(
            tiny_qwen_stock,
            digits.train,
            folder / name,
            external_plugins=plugins,
            reward_funcs="even_characters",
            max_steps=4,
        )
        testing.run_swift("rlhf", arguments, timeout=240)
        found[name] = [row for row in testing.read_logging(folder / name) if "loss" in row]
    return found


@pytest.mark.parametrize("figure", SAME)
def test_every_step_equals_stock(logs, figure):
    stock, ours = ([row[figure] for row in logs[name]] for name in ("stock", "ours"))
    assert len(stock) == 4
    assert ours == pytest.approx(stock, abs=1e-5, rel=1e-5)


def test_the_run_has_something_to_compare(logs):
    assert all(row["grad_norm"] > 0 for row in logs["stock"])
    assert any(row["reward_std"] > 0 for row in logs["stock"])
