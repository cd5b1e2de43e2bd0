"""Records of ms-swift's micro-batches, kept beside them and not on them."""

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from swift_grpo_ext.group.micro_batch import MicroBatch
from swift_grpo_ext.group.zero_advantage import needed_tokens, zero_advantage_rows
from swift_grpo_ext.ms_swift.shared import GRPOBatch
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.watch.guard import watches


@dataclass
class BatchRecord:
    """Facts about one micro-batch beside those that ms-swift keeps on it."""

    samples: tuple[VisionSample, ...] = ()  # of its rows, without their encodings; empty where unknown
    batch: MicroBatch | None = None  # its images and groups, once a pass has asked for them
    first_update: bool = False  # nothing is updated before its first policy pass, so it has no old pass
    forwarded: Bool[Tensor, "batch keep"] | None = None  # tokens that the policy's pass went over; None: all
    skipped: int = 0  # passes over it that were left out and are not counted yet
    packs: int | None = None  # in place of ms-swift's chunks; 0: chunks; None: not decided


class BatchRecords:
    """A table by micro-batch. ms-swift's are not hashable: the key is an object's id while it lives."""

    def __init__(self) -> None:
        self._records: dict[int, tuple[weakref.ref[Any], BatchRecord]] = {}
        self._coming: Iterator[Sequence[VisionSample]] | None = None  # samples of micro-batches not yet seen

    def __len__(self) -> int:
        return len(self._records)

    def of(self, grpo_batch: GRPOBatch) -> BatchRecord:
        """Record of a micro-batch; for a new one an empty record, which stays."""
        key = id(grpo_batch)
        if key not in self._records:
            gone = weakref.ref(grpo_batch, lambda _: self._records.pop(key, None))
            self._records[key] = gone, BatchRecord()
        return self._records[key][1]

    @contextmanager
    def preparing(self, host: Host, samples: Sequence[VisionSample]) -> Iterator[None]:
        """While this is open, ms-swift makes micro-batches of samples, one after the other."""
        # With sequence parallelism a chunk has samples of several ranks.
        alone = host.template.sequence_parallel_size == 1
        self._coming = iter(host.split_by_mini_batches(samples) if alone else ())
        try:
            yield
        finally:
            self._coming = None

    def phase_of(self, grpo_batch: GRPOBatch, handled: bool) -> str:
        """Phase of a pass: old for the first over a micro-batch in the making; else ``handled`` decides."""
        if self._coming is None:
            return "forward" if torch.is_grad_enabled() else "logps"
        if id(grpo_batch) not in self._records:
            chunk = [copy(sample) for sample in next(self._coming, ())]
            for sample in chunk:
                sample.encoded = None  # it holds pixels
            self.of(grpo_batch).samples = tuple(chunk)
            return "old"
        return "reference" if handled else "logps"


class PassWork:
    """Counts the tokens of one rank's passes while it trains; see `watch.phases.Bill`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.guard = host.guard
        self._counts: Counter[str] = Counter()

    @watches("count of passes")
    def add(self, record: BatchRecord, forwarded: Sequence[MicroBatch]) -> None:
        """Count a pass over parts of a micro-batch, and passes that were left out before it."""
        assert record.batch is not None
        passes = 1 + record.skipped
        record.skipped = 0
        if self._host.model.training:
            tokens = record.batch.given["input_ids"].numel()
            done = sum(part.pack.layout.length if part.pack else tokens for part in forwarded)
            self._counts.update({"tokens": done, "stock tokens": passes * tokens})

    def drain(self) -> Counter[str]:
        """The counts since the last call."""
        counts = self._counts
        self._counts = Counter()
        return counts


def forwarded_tokens(host: Host, grpo_batch: GRPOBatch) -> Bool[Tensor, "batch keep"] | None:
    """Completion tokens whose log-probs are read; None if all are."""
    if not host.model.training or not torch.is_grad_enabled() or grpo_batch.advantages is None:
        return None
    if grpo_batch.teacher_per_token_logps is not None:
        return None
    filtered = grpo_batch.truncated_mask if host.overlong_filter else None
    rows = zero_advantage_rows(grpo_batch.advantages, grpo_batch.completion_mask, filtered)
    return needed_tokens(grpo_batch.completion_mask, rows) if bool(rows.any()) else None
