"""B11: ZeRO-0 in bf16 before DeepSpeed 0.18.6, on a copy that has the defect, on one that does not, and here."""

import json
import os
import subprocess
import sys

import pytest
from old_deepspeed import PROJECT, RECOMMENDED, TESTS, environment_of, one_rank

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("old deepspeed")]

LOSS_SCALE = 65536


@pytest.mark.parametrize(
    ("version", "weights"),
    [
        # Each step divides by a scale that the loss never had, and keeps the gradient of the one before.
        ("0.18.5", [1 / LOSS_SCALE, 3 / LOSS_SCALE]),
        (RECOMMENDED, [1, 2]),
        ("", [1, 2]),
    ],
    ids=["0.18.5", "recommended", "installed"],
)
def test_two_steps(version, weights):
    done = subprocess.run(
        [sys.executable, TESTS / "compat" / "zero0_steps.py"],
        env={**os.environ, **environment_of(version), **one_rank()},
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
    variables = environment_of("0.18.5") | one_rank()
    result = testing.run_swift("rlhf", arguments, variables, timeout=600, check=False)
    assert result.returncode != 0
    assert "swift-grpo-ext: B11: gradients would be divided by 65536" in result.tail
    assert 'pip install "deepspeed>=0.18.6"' in result.tail
