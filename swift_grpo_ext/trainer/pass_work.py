"""What passes forward and encode, and what ms-swift alone would have: counted for the bill of a step."""

from __future__ import annotations

from collections import Counter

from swift_grpo_ext.group.micro_batch import MicroBatch
from swift_grpo_ext.group.vision_once import VisionOnce
from swift_grpo_ext.trainer.batches import Known
from swift_grpo_ext.trainer.host import Host


class PassWork:
    """Counts the passes of one rank while it trains; see `watch.phases.SAVED`.

    Args:
        host: The trainer.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._counts: Counter[str] = Counter()
        self._encoded = 0

    def add(self, known: Known, whole: MicroBatch, forwarded: MicroBatch, vision: VisionOnce | None) -> None:
        """Count a pass over a micro-batch, and those that were left out before it.

        Args:
            vision: Encodes its images; None where each pass does.
        """
        passes, known.skipped = 1 + known.skipped, 0
        if not self._host.model.training:
            return
        tokens = whole.given["input_ids"].numel()
        done = len(forwarded.pack.source) if forwarded.pack else tokens
        counts = {"passes": 1, "stock passes": passes, "tokens": done, "stock tokens": passes * tokens}
        if vision:
            encoded, self._encoded = vision.cache.images - self._encoded, vision.cache.images
            every = range(len(whole.completion_mask))
            images = sum(len(one.of_rows(every)) for one in (whole.media or {}).values())
            counts |= {"images": encoded, "stock images": passes * images}
        self._counts.update(counts)

    def drain(self) -> Counter[str]:
        """The counts since the last call."""
        counts, self._counts = self._counts, Counter()
        return counts
