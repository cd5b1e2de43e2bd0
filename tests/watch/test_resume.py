"""A run that goes on from a checkpoint sees the data that it would have seen."""

import dataclasses

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.trainer.engine_check import EngineCheck

FIGURES = ("reward", "grad_norm", "loss", "watch/entropy", "learning_rate")


def arguments(model, digits, output, reward="test_Good", **overrides):
    plugin = __file__.replace("test_resume", "faulty_rewards")
    return testing.grpo_arguments(
        model,
        digits.train,
        output,
        reward_funcs=reward,
        external_plugins=[plugin_file(), plugin],
        **{
            "max_steps": 5,
            "beta": 0,
            "save_strategy": "steps",
            "save_steps": 2,
            "learning_rate": 1e-3,
            **overrides,
        },
    )


def steps(output):
    return {
        int(row["global_step/max_steps"].split("/")[0]): row
        for row in testing.read_logging(output)
        if "loss" in row
    }


def prompts(output):
    return {int(row["step"]): row["images"] for row in testing.read_completions(output)}


def check_goes_on(whole, resumed):
    before, after = steps(whole), steps(resumed)
    assert set(after) == {3, 4, 5}
    for step, row in after.items():
        for figure in FIGURES:
            assert row.get(figure) == pytest.approx(before[step].get(figure), abs=1e-4), (step, figure)
        assert prompts(resumed)[step] == prompts(whole)[step]


@pytest.fixture
def whole(tiny_qwen, digits, tmp_path):
    testing.run_in_process("rlhf", arguments(tiny_qwen, digits, tmp_path / "whole"))
    return tmp_path / "whole"


def test_a_resumed_run_goes_on(whole, tiny_qwen, digits, tmp_path, monkeypatch):
    judge, judged = EngineCheck._judged, []
    monkeypatch.setattr(
        EngineCheck, "_judged", lambda check, ranks: judged.append(check._step) or judge(check, ranks)
    )
    checkpoint = testing.newest_version(whole) / "checkpoint-2"
    testing.run_in_process(
        "rlhf", arguments(tiny_qwen, digits, tmp_path / "resumed", resume_from_checkpoint=checkpoint)
    )
    check_goes_on(whole, tmp_path / "resumed")
    assert judged == [2, 3, 4], "a start has an engine of its own, whose first steps are compared"


@pytest.mark.slow
def test_a_run_killed_in_the_middle_of_a_step_goes_on(whole, tiny_qwen, digits, tmp_path):
    killed = testing.run_swift(
        "rlhf",
        arguments(tiny_qwen, digits, tmp_path / "killed", reward="test_Kills"),
        timeout=280,
        check=False,
    )
    assert killed.returncode != 0
    checkpoint = testing.newest_version(tmp_path / "killed") / "checkpoint-2"
    testing.run_in_process(
        "rlhf", arguments(tiny_qwen, digits, tmp_path / "resumed", resume_from_checkpoint=checkpoint)
    )
    check_goes_on(whole, tmp_path / "resumed")


@pytest.mark.slow
@pytest.mark.parametrize("saved", [3, 4])
def test_a_run_resumed_after_its_first_epoch_goes_on_in_the_order_of_its_own(
    saved, tiny_qwen, digits, tmp_path
):
    """Three steps an epoch: TRL's sampler alone would begin with the order of the first epoch again."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(digits.train.read_text().splitlines(keepends=True)[:3]))
    few = dataclasses.replace(digits, train=rows)
    longer = {"max_steps": 8, "num_train_epochs": 3, "save_steps": saved, "num_generations": 4}
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    testing.run_in_process("rlhf", arguments(tiny_qwen, few, whole, **longer))
    checkpoint = testing.newest_version(whole) / f"checkpoint-{saved}"
    words = arguments(tiny_qwen, few, resumed, **longer, resume_from_checkpoint=checkpoint)
    testing.run_in_process("rlhf", words)
    for step, row in steps(resumed).items():
        assert prompts(resumed)[step] == prompts(whole)[step], step
        assert row["loss"] == pytest.approx(steps(whole)[step]["loss"], abs=1e-6), step
    assert set(steps(resumed)) == set(range(saved + 1, 9))
    for first in (0, 3):
        assert len({str(prompts(whole)[step]) for step in range(first + 1, first + 4)}) == 3
