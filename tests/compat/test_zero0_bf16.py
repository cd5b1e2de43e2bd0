"""B11: ZeRO-0 in bf16 before DeepSpeed 0.18.6, on a copy that has the defect, on one that does not, and here."""

import json
import os
import subprocess
import sys

import pytest
from compat.copies import HERE, PROJECT, environment_of

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.run import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("old deepspeed")]

LOSS_SCALE = 65536


@pytest.mark.parametrize(
    ("version", "weights"),
    [
        # Each step divides by a scale that the loss never had, and keeps the gradient of the one before.
        ("0.18.5", [1 / LOSS_SCALE, 3 / LOSS_SCALE]),
        ("0.18.9", [1, 2]),
        ("", [1, 2]),
    ],
    ids=["0.18.5", "0.18.9", "installed"],
)
def test_two_steps(version, weights):
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, HERE / "zero0_steps.py"],
        env={**os.environ, **environment_of(version), **one_rank, "MASTER_PORT": str(free_port())},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == pytest.approx(weights, rel=0.01)


def test_the_command_refuses_it(tiny_qwen, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path,
        external_plugins=[PROJECT / "tests/e2e/gloo_for_zero3.py", plugin_file()],
        reward_funcs="format",
        deepspeed="zero0",
        bf16=True,
        torch_dtype="bfloat16",
    )
    variables = environment_of("0.18.5") | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    result = testing.run_swift("rlhf", arguments, variables, timeout=600, check=False)
    assert result.returncode != 0
    assert "swift-grpo-ext: B11: gradients would be divided by 65536" in result.tail
    assert 'pip install "deepspeed>=0.18.6"' in result.tail
