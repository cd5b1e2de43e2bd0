"""Second copies of DeepSpeed, each release in a folder of its own beside the project's other environments."""

import os
import subprocess
import sys
from pathlib import Path

from swift_grpo_ext import testing
from swift_grpo_ext.testing.run import free_port

RECOMMENDED = "0.18.9"  # by ms-swift
TESTS = Path(__file__).parent
PROJECT = TESTS.parent
KEPT = PROJECT / ".swift_grpo_ext"


def environment_of(version, *folders):
    """Variables of a run with this release of DeepSpeed, made on first use; with the installed one for "".

    Releases rebuild each other's C++ ops in a folder that they share, so each has its own.

    Args:
        version: Exact release, or "".
        *folders: Put on the module path too.
    """
    path = [PROJECT, *folders]
    variables = {**testing.cpu_environment(), "OMP_NUM_THREADS": "1"}
    if version:
        copy = KEPT / f"deepspeed-{version}"
        if not (copy / "deepspeed").is_dir():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(copy)]
            subprocess.run([*pip, f"deepspeed=={version}"], check=True, timeout=600)
        path.insert(1, copy)
        variables["TORCH_EXTENSIONS_DIR"] = str(KEPT / f"deepspeed-{version}-ops")
    return variables | {"PYTHONPATH": os.pathsep.join(map(str, path))}


def one_rank():
    """Variables of a launcher that starts a single rank."""
    names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    return names | {"MASTER_PORT": str(free_port())}
