"""Host waits of an update on the made-up device: each would empty a GPU's queue of kernels."""

import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("host_waits")  # one worker, which makes each run once
SCRIPT = Path(__file__).with_name("on_device.py")
# Lines of ours that ask themselves, by file; docs/modes.md says what for.
OURS = {
    "group/micro_batch.py": 1,
    "group/vision.py": 2,
    "group/advantages.py": 1,
    "hugging_face/tower_plans.py": 1,
    "trainer/baselines.py": 1,
    "trainer/logging.py": 1,
    "trainer/monitors.py": 1,
    "trainer/numerics.py": 2,
    "trainer/tracing.py": 1,
    "watch/movement.py": 1,
}


@cache
def updates(*words: str) -> list[dict]:
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=280)
    line = next((line for line in done.stdout.splitlines() if "FIGURES " in line), None)
    assert line, (done.stdout + done.stderr)[-3000:]
    return json.loads(line.split("FIGURES ", 1)[1])


@pytest.mark.slow
def test_waits_of_an_update_do_not_grow_with_the_group():
    few, many = (updates("--group", size)[-1]["total"] for size in ("4", "8"))

    assert many <= few


def test_each_wait_of_our_own_is_known():
    found = Counter()
    for place, _, count in updates("--group", "8")[-1]["waits"]:
        line, _, asked_by = place.removeprefix("swift_grpo_ext/").partition(" ")
        found[line.partition(":")[0]] += 0 if asked_by else count
    assert +found == OURS


def test_the_first_update_is_compared_with_few_waits_more():
    first, second = (update["total"] for update in updates("--group", "8"))

    assert first - second <= 60


@pytest.mark.slow
def test_at_most_half_of_ms_swifts_waits():
    ours, stock = (updates(*words)[-1]["total"] for words in (("--group", "8"), ("--group", "8", "--stock")))

    assert ours <= stock / 2
