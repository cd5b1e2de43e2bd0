"""`swift-grpo-ext selftest --megatron`, whose children of `megatron rlhf` run on the CPU."""

import os
import subprocess

import pytest

from tests.megatron.runs import HERE, PATH

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]


def test_megatron_trains_as_transformers_do(python, tmp_path):
    command = [python, "-m", "swift_grpo_ext.cli", "selftest", "--megatron", "--folder", tmp_path / "runs"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE / "preload"), PATH])}
    ran = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, timeout=800)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    assert "No equality is violated." in ran.stdout
    assert ran.stdout.count("  equal") == 3
