"""Main memory that a run takes more and more of, until it is killed."""

from collections import deque
from itertools import pairwise

from swift_grpo_ext.watch.causes import Cause

STEPS = 60  # in each ten of which memory must have grown
GIB = 0.5


class MemoryGrowth:
    """Watches the resident memory of the first rank."""

    def __init__(self) -> None:
        self._resident: deque[float] = deque(maxlen=STEPS)
        self._told = False

    def add(self, resident: float | None) -> Cause | None:
        """Take in the GiB of a step; that it grows, once, by half a GiB and a twentieth at least."""
        self._resident.append(resident or 0.0)
        known = list(self._resident)
        # The least of each ten steps: lulls between peaks.
        tens = [min(known[start : start + 10]) for start in range(0, len(known), 10)]
        grown = tens[-1] - tens[0]
        rises = all(later > earlier for earlier, later in pairwise(tens))
        if self._told or len(known) < STEPS or not rises or grown < max(GIB, 0.05 * tens[0]):
            return None
        self._told = True
        text = (
            f"the first rank's main memory grew by {grown:.1f} GiB to {known[-1]:.1f} GiB over {STEPS} "
            "steps, in each ten of them; a run that goes on like this is killed when memory is used up: "
            "--dataloader_num_workers 0 shows whether it is a worker or a reward of yours"
        )
        return Cause("memory-grows", text)
