"""Time of ``swift-grpo-ext check`` on the launch commands of the tests, a new process each, without rows.

``python -m benchmarks.check_time [N]`` prints the median over every N-th command.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

LAUNCHES = Path(__file__).parents[1] / "tests" / "doctor" / "launches.yaml"
# Parts of whole scripts; the others are options alone.
_WHOLE = ("wrappers", "failures", "not_followed", "written_by_the_script", "not_known")


def commands() -> list[str]:
    """The launch commands as scripts."""
    table = yaml.safe_load(LAUNCHES.read_text(encoding="utf-8"))
    base = table.pop("grpo")
    found = []
    for part, entries in table.items():
        for entry in entries.values():
            text = (
                entry[0] if isinstance(entry, list) else entry["text"] if isinstance(entry, dict) else entry
            )
            text = text if part in _WHOLE else f"{base} {text}"
            found.append(text.replace("{GRPO}", base).replace("{ARGS}", base.split(" rlhf ")[1]))
    return found


def main() -> None:
    """Print the median and the longest."""
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.sh"
        for text in commands()[::every]:
            path.write_text(text, encoding="utf-8")
            started = time.perf_counter()
            words = [sys.executable, "-m", "swift_grpo_ext.cli", "check", "--quick", "--rows", "0", str(path)]
            subprocess.run(words, capture_output=True, check=False, cwd=folder)
            seconds.append(time.perf_counter() - started)
    median, longest = statistics.median(seconds), max(seconds)
    print(f"{len(seconds)} checks: median {median:.2f} s, longest {longest:.1f} s")


if __name__ == "__main__":
    main()
