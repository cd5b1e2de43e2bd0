"""Times, peak memory and the machine's name, for all benchmarks."""

from __future__ import annotations

import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass
class Peak:
    """Most bytes in use between two points, as far as they are above ``base``."""

    base: int = 0
    bytes: int = 0

    @property
    def above(self) -> int:
        """Bytes on top of what was there at the start (the weights)."""
        return self.bytes - self.base


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Watch the memory of this process: the allocator's own mark on a GPU, the resident set on a CPU.

    On a CPU the kernel's high-water mark of the resident set is reset and read (``/proc/self/clear_refs``);
    where that is not allowed, the resident set is sampled every 2 ms.
    """
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        peak.base = torch.cuda.memory_allocated(device)
        yield peak
        torch.cuda.synchronize(device)
        peak.bytes = torch.cuda.max_memory_allocated(device)
        return
    release_free_memory()
    peak.base = _status("VmRSS")
    if _reset_high_water_mark():
        yield peak
        peak.bytes = _status("VmHWM")
        return
    with _sampled(peak):
        yield peak


@contextmanager
def exact_heap() -> Iterator[None]:
    """While this is open, freed tensors of a megabyte and more go back to the kernel at once.

    Otherwise glibc keeps holes that no later tensor fits into, and the resident set of one and the same run
    varies by a tenth. Open it before the first large tensor is made: holes that are there already go on being
    filled, and grow again. It costs time: not for timings.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    mallopt(_MMAP_THRESHOLD, 2**20)
    try:
        yield
    finally:
        mallopt(_MMAP_THRESHOLD, 32 * 2**20)  # where glibc arrives by itself
        mallopt(_TRIM_THRESHOLD, 64 * 2**20)


_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # malloc.h


def release_free_memory() -> None:
    """Hand freed heap pages back to the kernel, so that the resident set is what is in use."""
    import ctypes
    import gc

    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return  # another C library: freed pages then count as used, for both sides alike


def _reset_high_water_mark() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


@contextmanager
def _sampled(peak: Peak) -> Iterator[None]:
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak.bytes = max(peak.bytes, _status("VmRSS"))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def timed(run: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Wall clock seconds of ``run()``, the device's work included, and what it returned."""
    _synchronize(device)
    start = time.perf_counter()
    result = run()
    _synchronize(device)
    return time.perf_counter() - start, result


def interleaved(
    runs: dict[str, Callable[[], Any]], repeats: int, device: torch.device
) -> dict[str, list[float]]:
    """Seconds of each of several runs, taken in turn so that a busy machine slows all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            seconds[name].append(timed(run, device)[0])
    return seconds


def file_to_write(name: str) -> Path:
    """Of an option: its folder is made before the measurement, not missed after it."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def median(values: list[float]) -> float:
    """The median; 0 of nothing."""
    return statistics.median(values) if values else 0.0


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures were taken on."""
    import transformers

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "device": name,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def ranks_variables() -> dict[str, str]:
    """Environment of several processes of this machine that are one run."""
    from swift_grpo_ext.testing.run import free_port

    return {"MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
