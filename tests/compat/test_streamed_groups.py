"""Streams in GRPO: without the package each completion of a group answers another prompt; with it they are refused."""

import pytest

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.errors import RefusedError


@pytest.fixture
def run(tiny_qwen, asking, asked, tmp_path):
    """Starts a run over a stream, and gives the prompts of each step by group."""
    swift_grpo_ext.register()
    questions = asking(f"number {n}" for n in range(7))

    def start():
        options = {"streaming": True, "reward_funcs": "format", "max_steps": 1}
        options["per_device_train_batch_size"] = 4
        testing.run_in_process(
            "rlhf", testing.grpo_arguments(tiny_qwen, questions, tmp_path / "out", **options)
        )
        return asked(tmp_path / "out")

    return start


def test_before_a_group_is_several_prompts(run, stock_trainer):
    assert all(len(set(group)) > 1 for group in run()[0])


def test_a_stream_is_refused_in_one_line(run):
    with pytest.raises(RefusedError) as refused:
        run()
    words = "F18: a group of a stream would hold different prompts [--streaming true] -> --streaming false"
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
