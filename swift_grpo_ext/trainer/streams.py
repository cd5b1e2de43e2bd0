"""Rows of a stream in the order in which GRPO takes them: each once for every completion of its group."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch.utils.data import DataLoader, IterableDataset

from swift_grpo_ext.errors import DatasetRowError, RefusedError
from swift_grpo_ext.trainer.samples import Row


@dataclass(frozen=True)
class Plan:
    """How rows become batches; the counterpart of TRL's `RepeatSampler` and the dataloader behind it."""

    prompts: int  # different rows of a generation batch, on all ranks together
    group: int  # completions of a row, ``num_generations``
    repeats: int  # of a generation batch: one a micro-step is taken, used are those of steps that generate
    batch: int  # rows that a rank takes at a time
    rank: int = 0
    ranks: int = 1


class GroupedStream(IterableDataset):
    """Batches of one rank, without an end: when the stream is over it is read again, as its next epoch.

    The first rank reads, with `reader` once an epoch, and the others get what it has read. A run that is
    resumed skips batches, over the ends of epochs too.
    """

    def __init__(
        self, stream: Any, plan: Plan, reader: Callable[[Any], Iterator[Any]] = iter, first_epoch: int = 0
    ) -> None:
        self.stream = stream
        self.plan = plan
        self.reader = reader
        self.first_epoch = first_epoch

    def __iter__(self) -> Iterator[list[Row]]:
        rows = self._rows()
        plan = self.plan
        while everyone := list(islice(rows, plan.batch * plan.ranks)):
            yield everyone[plan.rank * plan.batch : (plan.rank + 1) * plan.batch]

    def _rows(self) -> Iterator[Row]:
        for rows in self._shared():
            for _ in range(self.plan.repeats):
                for row in rows:
                    yield from (copy.deepcopy(row) for _ in range(self.plan.group))

    def _shared(self) -> Iterator[list[Row]]:
        """The different rows of each generation batch, on every rank.

        Raises:
            DatasetRowError: The first rank cannot read the stream; it raises its own error.
        """
        batches = self._read() if self.plan.rank == 0 else None
        while True:
            message: list[Any] = [None, None]
            if batches is not None:
                try:
                    message[0] = next(batches)
                except Exception as error:
                    message[1] = f"{type(error).__name__}: {error}"
                    broadcast_object_list(message)
                    raise
            broadcast_object_list(message)
            if message[1] is not None:
                raise DatasetRowError(f"the first rank cannot read the stream: {message[1]}")
            yield message[0]

    def _read(self) -> Iterator[list[Row]]:
        for epoch in count(self.first_epoch):
            if hasattr(self.stream, "set_epoch"):
                self.stream.set_epoch(epoch)  # which shuffles anew, if it is shuffled
            rows = self.reader(self.stream)
            whole = 0
            while len(batch := list(islice(rows, self.plan.prompts))) == self.plan.prompts:
                whole += 1
                yield batch
            if not whole:
                raise self._too_short(len(batch), epoch)

    def _too_short(self, rows: int, epoch: int) -> Exception:
        needed = f"a generation batch needs {self.plan.prompts} different rows"
        what = f"the stream has {rows} rows, and {needed}"
        fix = "more rows, or a smaller --generation_batch_size (with --steps_per_generation)"
        if rows == 0 and epoch > self.first_epoch:
            what = "the stream is empty when it is read a second time"
            fix = "a dataset that can be read again, or --streaming false"
        return RefusedError(what, where="--streaming true", fix=fix)


def in_groups(trainer: Any, stock: Callable[[], DataLoader[list[Row]]]) -> DataLoader[list[Row]]:
    """The dataloader of a GRPO trainer: ms-swift's (``stock``), unless its training rows come as a stream."""
    args = trainer.args
    stream = trainer.train_dataset
    if not isinstance(stream, IterableDataset):
        return stock()
    refuse_single_use(stream)
    per_generation = args.steps_per_generation * trainer.template.sequence_parallel_size
    plan = Plan(
        prompts=args.generation_batch_size // trainer.num_generations,
        group=trainer.num_generations,
        repeats=trainer.num_iterations * per_generation,
        batch=trainer._train_batch_size * args.steps_per_generation,
        rank=trainer.accelerator.process_index,
        ranks=trainer.accelerator.num_processes,
    )

    # A dataloader draws a seed for each epoch. Of the run's own generator that would change what is sampled,
    # by when the stream is read: a generation batch ahead, or on the first rank alone.
    seeds = torch.Generator().manual_seed(args.seed)

    def read(rows: IterableDataset) -> Iterator[Row]:
        workers = args.dataloader_num_workers
        options = {"prefetch_factor": args.dataloader_prefetch_factor} if workers else {}
        return iter(
            DataLoader(
                rows, batch_size=None, collate_fn=_as_it_is, num_workers=workers, generator=seeds, **options
            )
        )

    # What the trainer makes when it is built is for resampling: other rows first, if the stream is shuffled.
    grouped = GroupedStream(stream, plan, read, first_epoch=0 if trainer.is_in_train else 1)
    collate = trainer._get_collator_with_removed_columns(trainer.data_collator, description="training")
    return DataLoader(grouped, batch_size=None, collate_fn=collate)


def refuse_single_use(stream: Any) -> None:
    """Check that a stream can be read again, as a second epoch and a resumed run need it.

    Raises:
        RefusedError: It cannot.
    """
    if iter(stream) is iter(stream):
        raise RefusedError(
            "the stream can be read once only: a second epoch would be empty, and no run could be resumed",
            where="--streaming true",
            fix="a dataset whose __iter__ starts anew each time, or --streaming false",
        )


def _as_it_is(row: Row) -> Row:
    return row
