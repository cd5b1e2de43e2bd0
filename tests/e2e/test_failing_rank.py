"""One rank of a real run fails, wherever it may be: all end in seconds, with its traceback in each log."""

import time
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing import newest_version
from swift_grpo_ext.watch.checkpoints import newest_whole
from tests.asserted_modes import asserting_mode

COLLABORATORS = ("rows", "completions", "scores", "advantages", "pass", "loss", "log", "save")


def four_steps(tiny_qwen, digits, tmp_path):
    """Arguments of a run that would take four steps; FAILS_IN says what of rank 1 is broken."""
    return testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path,
        external_plugins=[Path(__file__).with_name("failing_rank.py"), plugin_file()],
        reward_funcs="failing",
        max_steps=4,
        save_strategy="steps",
        save_steps=1,
    )


@pytest.mark.slow  # tests/trainer/test_distributed.py has the kind in the gate
@pytest.mark.two_ranks
@pytest.mark.parametrize(
    "where", ["reward", "construction", "template", "rollout", "optimizer", *COLLABORATORS]
)
def test_all_ranks_end_with_the_first_traceback(tiny_qwen, digits, tmp_path, where):
    failed_at = []
    fault = f"the {where} of rank 1 is broken"

    def watch(line):
        if fault in line and not failed_at:
            failed_at.append(time.monotonic())

    variables = {
        "FAILS_IN": where,
        "SWIFT_GRPO_EXT_REWARD_FAILURES": "0",  # by default a run outlives some failures of a reward
        "PET_LOG_DIR": str(tmp_path / "logs"),  # torchrun's own: a file for each rank's output
        "PET_TEE": "3",
    }
    words, mode = asserting_mode(four_steps(tiny_qwen, digits, tmp_path), ranks=2)
    result = testing.run_swift(
        "rlhf",
        words,
        {**mode, **variables},
        ranks=2,
        timeout=280,
        check=False,
        on_line=watch,
    )
    assert result.returncode != 0
    assert not result.timed_out
    assert failed_at
    assert time.monotonic() - failed_at[0] < 60, "seconds, on a busy machine too"
    logs = {path.parent.name: path.read_text() for path in (tmp_path / "logs").rglob("stderr.log")}
    assert sorted(logs) == ["0", "1"]
    for rank, text in logs.items():
        one_line = where == "save" and rank == "1"  # what a disk may do, so it ends with a line
        assert fault in (text if one_line else text.partition("Traceback (most recent call last)")[2])
    if where != "reward":  # failures of rewards are agreed on: rank 0 raises the error as its own
        assert "rank 1 failed, so rank 0 ends too. Its error:\nTraceback" in logs["0"]
        assert f"ValueError: {fault}" in logs["0"]


@pytest.mark.slow
@pytest.mark.two_ranks
def test_all_ranks_end_when_one_is_killed(tiny_qwen, digits, tmp_path):
    """By the kernel for memory, for example: nothing of it can say so, torchrun does."""
    start = time.monotonic()
    words, mode = asserting_mode(four_steps(tiny_qwen, digits, tmp_path), ranks=2)
    result = testing.run_swift(
        "rlhf",
        words,
        {**mode, "FAILS_IN": "process"},
        ranks=2,
        timeout=280,
        check=False,
    )
    assert not result.timed_out
    assert result.returncode != 0
    assert "Signal 9 (SIGKILL)" in result.tail
    assert time.monotonic() - start < 200, "a run of 4 steps, and no wait for --ddp_timeout"
    folder = newest_version(tmp_path)
    assert newest_whole(folder) == folder / "checkpoint-1"
