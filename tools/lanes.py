"""Notes that a lane passed, and at which commit: ``python tools/lanes.py LANE``, by its make target.

``tests/lanes.json`` says for each lane the commit and the day of its last run that was green, so that
nobody has to believe a sentence about it. A tree with changes is noted as such.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "lanes.json"


def commit() -> str:
    """Short name of the commit, with a plus where files differ from it."""
    return _git("rev-parse", "--short=8", "HEAD") + ("+" if _git("status", "--porcelain") else "")


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> None:
    """Write the lane that was named into the file."""
    lanes = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    lanes[sys.argv[1]] = {"commit": commit(), "date": date.today().isoformat()}
    FILE.write_text(json.dumps(lanes, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
