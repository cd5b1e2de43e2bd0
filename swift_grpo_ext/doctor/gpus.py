"""What GPUs this machine has, as their driver's own tool says: importing torch would take seconds."""

import subprocess
from dataclasses import dataclass

from swift_grpo_ext.errors import SwiftGrpoExtError

_QUERY = (
    "nvidia-smi",
    "--query-gpu=name,driver_version,memory.total,memory.free",
    "--format=csv,noheader,nounits",
)
_SECONDS = 20  # a driver that hangs


@dataclass(frozen=True)
class Gpu:
    """A GPU as its driver sees it."""

    name: str
    driver: str  # its release
    total: float = 0  # GiB; 0 where the driver does not say it
    free: float = 0  # GiB of it that nobody uses

    def __str__(self) -> str:
        memory = f"{self.free:.1f} of {self.total:.1f} GiB free" if self.total else "memory not known"
        return f"{self.name}, driver {self.driver}, {memory}"


def read_gpus() -> list[Gpu]:
    """The GPUs of this machine, at least one.

    Raises:
        SwiftGrpoExtError: There is none, no driver, or one that does not answer.
    """
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise SwiftGrpoExtError("none (no nvidia-smi here)") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SwiftGrpoExtError(f"not known ({error})") from None
    if done.returncode or not done.stdout.strip():
        answer = " ".join(done.stdout.split())
        raise SwiftGrpoExtError(f"none ({answer or f'nvidia-smi ended with {done.returncode}'})")
    return [_gpu(line) for line in done.stdout.splitlines() if line.strip()]


def _gpu(line: str) -> Gpu:
    name, driver, *memory = (part.strip() for part in line.split(","))
    return Gpu(name, driver, *(int(part) / 1024 for part in memory if part.isdigit()))


def gpus_in_words() -> list[str]:
    """A line for each GPU with driver and memory, or one that says why there is none."""
    try:
        return [f"GPU {number}: {gpu}" for number, gpu in enumerate(read_gpus())]
    except SwiftGrpoExtError as error:
        return [f"GPU: {error.what}"]
