"""Sees to it that there is a browser for the tests of the report's page: ``python tools/browser.py``.

Chromium comes from the machine's own package manager (apt, as root). Where that is not possible one line says
what to do, and the exit status is 1: tests that need a browser are never skipped silently.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/watch/report"))

from chromium import COMMANDS, find_browser  # noqa: E402 - beside the tests that use it

INSTALL = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium")
UPDATE = ("apt-get", "update", "--quiet")
_TRIES = 2
_LIMIT = 600  # seconds of one command


def problem() -> str:
    """Install Chromium if there is no browser; what went wrong, empty if there is one now."""
    if find_browser():
        return ""
    if not shutil.which("apt-get"):
        return "there is no apt-get here"
    if os.geteuid() != 0:
        return "this user may not install packages"
    print("installing chromium for the tests of the report's page ...", flush=True)
    for _ in range(_TRIES):
        said = "".join(_said(command) for command in (UPDATE, INSTALL))
        if find_browser():
            return ""
    return f"apt-get did not install chromium: {' '.join(said.split())[-200:]}"


def _said(command: tuple[str, ...]) -> str:
    """Run a command; its last words."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr


def main() -> int:
    """Entry of the command line."""
    if why := problem():
        names = " or ".join(COMMANDS)
        print(
            f"no browser for the tests of the report's page, {why} -> as root: apt-get install chromium, "
            f"or put {names} on PATH",
            file=sys.stderr,
        )
    return int(bool(why))


if __name__ == "__main__":
    sys.exit(main())
