"""Host waits of an update on the made-up device: each would empty a GPU's queue of kernels."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("on_device.py")
OF_EACH_UPDATE = ("trainer/grpo.py", "trainer/baselines.py", "group/", "models/", "trainer/logging.py")


@cache
def updates(*words: str) -> list[dict]:
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=280)
    line = next((line for line in done.stdout.splitlines() if "FIGURES " in line), None)
    assert line, (done.stdout + done.stderr)[-3000:]
    return json.loads(line.split("FIGURES ", 1)[1])


def test_waits_of_an_update_do_not_grow_with_the_group():
    few, many = (updates("--group", size)[-1]["total"] for size in ("4", "8"))

    assert many <= few


@pytest.mark.slow
def test_fewer_waits_than_ms_swift():
    ours, stock = (updates(*words)[-1]["total"] for words in (("--group", "8"), ("--group", "8", "--stock")))

    assert ours < stock
