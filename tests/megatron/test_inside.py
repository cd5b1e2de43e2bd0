"""Runs the tests of `inside/` in Megatron's environment, in one process: half of their time is its imports."""

import os
import subprocess
import sys

from tests.megatron.runs import PATH, PROJECT


def test_inside(python):
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/megatron/inside"]
    environment = {**os.environ, "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [*map(str, command)], cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=240
    )
    print(ran.stdout[-6000:], file=sys.stderr)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
