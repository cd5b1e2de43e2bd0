"""What happens on the made-up device: waits and copies by the line that asked, and bytes, by phase."""

import threading
import traceback
import weakref
from collections import Counter

import torch

ROOMS = ("swift_grpo_ext/", "site-packages/swift/", "site-packages/trl/", "site-packages/transformers/")


class Ledger:
    """Waits, copies and bytes since the last `reset`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.waits: Counter[tuple[str, str, str]] = Counter()  # (phase, line, what was asked)
        # To the device: "waited for", or not, from memory that is "pinned" or "pageable" (staged by the driver).
        self.copies: Counter[str] = Counter()
        self.pinned: set[int] = set()  # addresses of storages
        self.phase = ""
        self.limit = 0  # bytes; 0: none
        self.allocated = 0
        self.peaks: Counter[str] = Counter()  # phase to most bytes at one time
        self.full: torch.OutOfMemoryError | None = None  # what a thread of autograd could not raise
        self._live: dict[int, int] = {}

    def reset(self) -> None:
        """Forget waits, copies and peaks; what is allocated stays."""
        self.waits.clear()
        self.copies.clear()
        self.peaks.clear()

    def wait(self, operation: str) -> None:
        self.waits[self.phase, asked_by(), operation] += 1

    def copy(self, source: torch.Tensor, non_blocking: bool) -> None:
        """Count a copy from the main memory to the device."""
        kind = "pinned" if source.untyped_storage().data_ptr() in self.pinned else "pageable"
        self.copies[kind if non_blocking else "waited for"] += 1

    def pin(self, raw: torch.Tensor) -> None:
        """Take a tensor's memory for pinned, while there is such."""
        address = raw.untyped_storage().data_ptr()
        self.pinned.add(address)
        weakref.finalize(raw.untyped_storage(), self.pinned.discard, address)

    def add(self, raw: torch.Tensor) -> None:
        """Count a storage that is new; raises as CUDA does where it does not fit."""
        storage = raw.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if not size or address in self._live:
            return
        if self.limit and self.allocated + size > self.limit:
            free = self.limit - self.allocated
            full = torch.OutOfMemoryError(
                f"{self._device} out of memory. Tried to allocate {size} bytes, {free} are free"
            )
            # There an exception ends the process: PyTorch's guard of streams calls Python while it is unwound.
            if not threading.current_thread().name.startswith("Dummy-"):
                raise full
            self.full = self.full or full
        self._live[address] = size
        self.allocated += size
        self.peaks[self.phase] = max(self.peaks[self.phase], self.allocated)
        weakref.finalize(storage, self._free, address)

    def _free(self, address: int) -> None:
        self.allocated -= self._live.pop(address, 0)


def asked_by() -> str:
    """The innermost line of the first of `ROOMS` that has one; in brackets the room that asked inside of it."""
    frames = [frame for frame in traceback.extract_stack() if "/tests/device/" not in frame.filename]
    for room in ROOMS:
        own = [number for number, frame in enumerate(frames) if room in frame.filename]
        if own:
            frame = frames[own[-1]]
            inner = next((r for r in ROOMS if any(r in f.filename for f in frames[own[-1] + 1 :])), "")
            name = f"{room.rstrip('/').split('/')[-1]}/{frame.filename.split(room)[-1]}:{frame.lineno}"
            return f"{name} ({inner.rstrip('/').split('/')[-1]})" if inner else name
    return "elsewhere"
