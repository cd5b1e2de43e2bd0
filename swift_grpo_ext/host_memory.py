"""Main memory of this machine, or of the container that this process runs in, as Linux tells it."""

from collections.abc import Iterator
from os import sysconf
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
# Of cgroups v2 and v1: the limit, what is in use, and the part of that which the kernel would give up.
_FILES = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def resident_bytes(proc: Path = PROC) -> int | None:
    """Bytes of this process that are in memory; None if nobody can tell."""
    try:
        pages = int((proc / "self" / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * int(sysconf("SC_PAGE_SIZE"))


def free_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Bytes that this process and its siblings may still take: the machine's, or less within a container.

    None if nobody can tell.
    """
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        kibibytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return max(0, min([kibibytes * 1024, *_left_in_cgroups(proc, cgroups)]))


def _left_in_cgroups(proc: Path, cgroups: Path) -> Iterator[int]:
    """What each cgroup around this process leaves, of those that have a limit."""
    try:
        entries = [line.split(":", 2) for line in (proc / "self" / "cgroup").read_text().splitlines()]
    except OSError:
        return
    for controller, limit, used, reclaimable in _FILES:
        for path in (path for _, names, path in entries if controller in names.split(",")):
            inner = Path(path.lstrip("/"))
            # In a container the path is the host's, and the container's own files lie at the top.
            for folder in (inner, *inner.parents):
                left = _left(cgroups / controller / folder, limit, used, reclaimable)
                if left is not None:
                    yield left


def _left(folder: Path, limit: str, used: str, reclaimable: str) -> int | None:
    try:
        most = int((folder / limit).read_text())  # "max" where there is none
        taken = int((folder / used).read_text())
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return most - taken + int(counts.get(reclaimable, 0))
    except (OSError, ValueError):
        return None
