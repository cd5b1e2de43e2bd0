"""Preflight inside a run: what it stops, and where it keeps quiet."""

import sys

import pytest

from swift_grpo_ext.doctor.check import preflight
from swift_grpo_ext.errors import RefusedError


@pytest.fixture
def argv(monkeypatch):
    def set_to(*words):
        monkeypatch.setattr(sys, "argv", list(words))

    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return set_to


def test_a_run_that_will_fail_is_stopped_with_the_list(argv, capsys):
    argv(
        "/x/swift/cli/rlhf.py",
        "--rlhf_type",
        "grpo",
        "--model",
        "Qwen/Qwen2.5-VL-3B-Instruct",
        "--temperature",
        "0",
    )
    with pytest.raises(RefusedError, match="preflight found errors"):
        preflight.preflight()
    assert "all completions of a group will be the same" in capsys.readouterr().err


@pytest.mark.parametrize("script", ["/x/swift/cli/rollout.py", "/x/pytest"])
def test_other_commands_are_left_alone(argv, capsys, script):
    argv(script, "--temperature", "0")
    preflight.preflight()
    assert capsys.readouterr().err == ""


def test_only_the_first_rank_of_a_node_speaks(argv, capsys, monkeypatch):
    argv("/x/swift/cli/rlhf.py", "--temperature", "0")
    monkeypatch.setenv("LOCAL_RANK", "1")
    preflight.preflight()
    assert capsys.readouterr().err == ""
