"""Second copies of DeepSpeed, each in a folder of its own beside the project's other environments."""

import os
import subprocess
import sys
from pathlib import Path

from swift_grpo_ext import testing

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
KEPT = PROJECT / ".swift_grpo_ext"


def environment_of(version):
    """Variables of a run with this release of DeepSpeed, made on first use; with the installed one for ""."""
    path = [PROJECT, HERE, PROJECT / "tests" / "e2e"]
    variables = {**testing.cpu_environment(), "OMP_NUM_THREADS": "1"}
    if version:
        folder = KEPT / f"deepspeed-{version}"
        if not (folder / "deepspeed").is_dir():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
            subprocess.run([*pip, f"deepspeed=={version}"], check=True, timeout=600)
        path.insert(1, folder)
        # Its C++ ops are built anew, in a place of their own.
        variables["TORCH_EXTENSIONS_DIR"] = str(KEPT / f"deepspeed-{version}-ops")
    return variables | {"PYTHONPATH": os.pathsep.join(map(str, path))}
