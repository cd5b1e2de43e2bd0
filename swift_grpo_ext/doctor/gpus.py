"""GPUs of this machine according to nvidia-smi: importing torch would take seconds."""

import subprocess
from dataclasses import dataclass

from swift_grpo_ext.errors import SwiftGrpoExtError

_QUERY = (
    "nvidia-smi",
    "--query-gpu=name,driver_version,memory.total,memory.free",
    "--format=csv,noheader,nounits",
)
_SECONDS = 20  # timeout, as a driver may hang


@dataclass(frozen=True)
class Gpu:
    """A GPU as its driver reports it."""

    name: str
    driver: str  # version of the driver
    total: float = 0  # GiB; 0 if the driver does not report it
    free: float = 0  # unused GiB

    def __str__(self) -> str:
        memory = f"{self.free:.1f} of {self.total:.1f} GiB free" if self.total else "memory not known"
        return f"{self.name}, driver {self.driver}, {memory}"


def read_gpus() -> list[Gpu]:
    """The GPUs of this machine, at least one.

    Raises:
        SwiftGrpoExtError: No GPU or no driver was found, or the driver does not answer.
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
    """One line per GPU with driver and memory, or one line with the reason why none was found."""
    try:
        return [f"GPU {number}: {gpu}" for number, gpu in enumerate(read_gpus())]
    except SwiftGrpoExtError as error:
        return [f"GPU: {error.what}"]
