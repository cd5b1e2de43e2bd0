"""The made-up device runs full: before the loss in halves as long as there are any, else the run ends by one line."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("on_device.py")


def ended(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=280)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mib", "options", "halves"),
    [
        # The tower over one image is what is too large, at the start or in a later step.
        ("11", [], 3),
        ("13", [], 0),
        # The policy's forward.
        ("12", ["checkpointing=false"], 3),
    ],
)
def test_it_ends_by_one_line_that_names_what_sets_the_size(mib, options, halves):
    done = ended("--group", "8", "--limit", mib, *options)
    assert done.returncode == 1
    assert (done.stdout + done.stderr).count("is now split into") == halves
    assert (
        done.stderr.rstrip()
        .splitlines()[-1]
        .startswith("swift-grpo-ext: a micro-batch of 8 does not fit -> ")
    )
