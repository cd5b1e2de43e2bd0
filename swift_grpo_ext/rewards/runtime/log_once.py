"""One line to the user, from the first rank of the run only, and each line once."""

from __future__ import annotations

import os
import sys

_told: set[str] = set()


def say(line: str) -> None:
    """Print a line on stderr, unless this process has said it or is not the first rank."""
    if os.environ.get("RANK", "0") == "0" and line not in _told:
        _told.add(line)
        print(f"swift-grpo-ext: {line}", file=sys.stderr, flush=True)
