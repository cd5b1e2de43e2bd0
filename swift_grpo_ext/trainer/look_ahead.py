"""Images of the next generation batch are prepared by threads while this one is sampled and trained.

The threads fill the template's store of prepared images, and whoever encodes a row finds them there: the same
results, in the order of the rows. A row whose image cannot be prepared fails when it is encoded, as ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models.template import VisionTemplate, images_in
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import Row

THREADS = 4


def why_not_ahead(template: object) -> str:
    """Reason why images are not prepared ahead, in a clause; empty if they are."""
    return "" if isinstance(template, VisionTemplate) else "ms-swift's own template prepares images"


class LookAhead:
    """The dataloader's batches, read one generation batch ahead."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.on = not (current_settings().disables("trainer.prepare_ahead") or why_not_ahead(host.template))
        self._source: Iterator[Sequence[Row]] | None = None
        self._read: deque[Sequence[Row]] = deque()
        self._threads: ThreadPoolExecutor | None = None

    def over(self, source: Iterator[Sequence[Row]]) -> Iterator[Sequence[Row]]:
        """The batches of an epoch. Batches left from another epoch are dropped, as ms-swift does."""
        if not self.on:
            return source
        if source is not self._source:
            self._source = source
            self._read.clear()
        return self._ahead_of(source)

    def _ahead_of(self, source: Iterator[Sequence[Row]]) -> Iterator[Sequence[Row]]:
        for handed_out in count(self._host._step):
            self._fill(source, handed_out)
            if not self._read:
                return
            yield self._read.popleft()

    def _fill(self, source: Iterator[Sequence[Row]], given: int) -> None:
        """Read until the next generation's first batch is there; ``given`` batches were handed out."""
        host = self._host
        ahead = host.args.steps_per_generation * host.num_iterations * host.template.sequence_parallel_size
        # Nothing is prepared after the last step. (Within a step, this overestimates what is left.)
        left = (host.state.max_steps - host.state.global_step) * host.args.gradient_accumulation_steps
        while len(self._read) <= ahead and (rows := next(source, None)) is not None:
            number = given + len(self._read)
            # ms-swift reads the rows of a generation once for each of its micro-batches, and uses the first.
            self._read.append(self._read[-1] if self._read and number % ahead else rows)
            if number % ahead == 0 and 0 < number - given < left:
                self._prepare(rows)

    def _prepare(self, rows: Sequence[Row]) -> None:
        """Let the threads prepare the images of rows, as far as they fit beside those of today."""
        self._threads = self._threads or ThreadPoolExecutor(THREADS, "swift-grpo-ext-images")
        room = _Room(self._host.template.images.store.limit // 2)
        named = (
            (source if isinstance(source, str) else id(source), source, row)
            for row in rows
            for source in _sources(row)
        )
        for source, row in {name: (source, row) for name, source, row in named}.values():
            self._threads.submit(self._prepare_image, source, row, room)

    def _prepare_image(self, source: object, row: Row, room: _Room) -> None:
        if room.left <= 0:
            return
        template = self._host.template
        options = template.resize_options(row.get("chat_template_kwargs") or {})
        try:
            (prepared,) = template.images.prepare_all([source], options)
        except DatasetRowError:
            return  # the row says so when it is encoded
        pixels = prepared.original[0] * prepared.original[1] + prepared.resized[0] * prepared.resized[1]
        room.left -= prepared.nbytes + 4 * pixels

    def close(self) -> None:
        """End the run: cancel images that no thread has started."""
        if self._threads:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


class _Room:
    """Bytes of the store that one generation batch may take before it is due."""

    def __init__(self, left: int) -> None:
        self.left = left


def _sources(row: Row) -> list[Any]:
    """Images of a row, in its column or in its messages."""
    return list(row.get("images") or images_in(row["messages"]))
