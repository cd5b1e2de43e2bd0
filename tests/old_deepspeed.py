"""DeepSpeed 0.18.9, which ms-swift recommends, as a second copy in a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

from swift_grpo_ext import testing

VERSION = "0.18.9"
PROJECT = Path(__file__).resolve().parents[1]
FOLDER = PROJECT / ".swift_grpo_ext" / f"deepspeed-{VERSION}"


def environment(*folders: Path) -> dict[str, str]:
    """Variables under which the old copy is imported; it builds its C++ ops in a place of its own.

    Args:
        *folders: Put on the module path too.
    """
    if not (FOLDER / "deepspeed").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(FOLDER)]
        subprocess.run([*command, f"deepspeed=={VERSION}"], check=True, timeout=600)
    return {
        **testing.cpu_environment(),
        "PYTHONPATH": os.pathsep.join(map(str, [PROJECT, FOLDER, *folders])),
        "TORCH_EXTENSIONS_DIR": str(FOLDER.with_name(f"deepspeed-{VERSION}-ops")),
        "OMP_NUM_THREADS": "1",
    }
