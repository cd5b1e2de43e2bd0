"""The benchmark of a GPU, dry: it must not rot while there is none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


@pytest.mark.slow
def test_it_runs_on_a_cpu_with_tiny_models(tmp_path):
    words = [sys.executable, str(SCRIPT), "--dry-run", "--to", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["missing"] == {}
    assert [(row["size"], row["backend"]) for row in found["rows"]] == [
        ("tiny", "sdpa"),
        ("tiny", "dense"),
        ("tiny-hybrid", "sdpa"),
        ("tiny-hybrid", "dense"),
    ]
    assert all(row["self_check"] == "passes" and row["grad_rel_diff"] < 0.05 for row in found["rows"])
    assert (tmp_path / "gpu.png").is_file()
    assert done.stdout.count("\n| core ") == 4
