"""What GPUs this machine has, as their driver's own tool says: importing torch would take seconds."""

import shutil
import subprocess

_QUERY = (
    "nvidia-smi",
    "--query-gpu=name,driver_version,memory.total,memory.free",
    "--format=csv,noheader,nounits",
)
_SECONDS = 20  # a driver that hangs


def gpus_in_words() -> list[str]:
    """A line for each GPU with driver and memory, or one that says why there is none."""
    if shutil.which(_QUERY[0]) is None:
        return ["GPU: none (no nvidia-smi here)"]
    try:
        asked = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"GPU: not known ({error})"]
    if asked.returncode:
        said = " ".join(asked.stdout.split())
        return [f"GPU: none ({said or f'nvidia-smi ended with {asked.returncode}'})"]
    return [_in_words(number, line) for number, line in enumerate(asked.stdout.splitlines()) if line.strip()]


def _in_words(number: int, line: str) -> str:
    """A GPU's line from `_QUERY`'s, with memory in GiB.

    >>> _in_words(0, "NVIDIA H100 80GB HBM3, 550.54.15, 81559, 81008")
    'GPU 0: NVIDIA H100 80GB HBM3, driver 550.54.15, 79.1 of 79.6 GiB free'
    """
    name, driver, *memory = [part.strip() for part in line.split(",")]
    if len(memory) == 2 and all(part.isdigit() for part in memory):
        total, free = (int(part) / 1024 for part in memory)
        return f"GPU {number}: {name}, driver {driver}, {free:.1f} of {total:.1f} GiB free"
    return f"GPU {number}: {name}, driver {driver}, memory not known"
