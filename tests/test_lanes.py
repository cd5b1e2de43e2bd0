"""Tests that the gate does not run are collected by it, so that a name that is gone is seen at once."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_tests_of_the_patches_can_be_imported():
    """Those under tests/ are collected with the gate's own."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "upstream"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_every_lane_notes_its_last_green_run():
    targets = re.findall(r"^(test-[a-z-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) > 10
    assert [name for name, commands in targets if "tools/lanes.py $@" not in commands] == []
