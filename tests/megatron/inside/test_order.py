"""Rows of a run that goes on from a checkpoint are those that the uninterrupted run would have seen."""

from itertools import chain

import pytest
from swift.megatron.trainers.batch_sampler import MegatronPretrainingRandomSampler

EPOCHS = 3


def rows_of(rows, ranks, sharding, consumed=0, epochs=EPOCHS):
    """Of all ranks, step by step, through some epochs, from so many prompts on."""
    samplers = [
        MegatronPretrainingRandomSampler([], rows, consumed, 1, rank, ranks, sharding, seed=7)
        for rank in range(ranks)
    ]
    steps = []
    for _ in range(epochs):
        steps += zip(*samplers, strict=True)
    return [sorted(chain(*step)) for step in steps]


# Rows that ranks do not share evenly need data_sharding: without it one of them has a step more in an epoch.
@pytest.mark.parametrize(
    ("rows", "ranks", "sharding"),
    [(12, 1, True), (12, 1, False), (12, 2, True), (12, 2, False), (13, 2, True)],
)
def test_every_row_of_every_epoch_once_wherever_a_run_is_resumed(rows, ranks, sharding):
    whole = rows_of(rows, ranks, sharding)
    epoch = len(whole) // EPOCHS
    assert len({tuple(whole[start * epoch]) for start in range(EPOCHS)}) > 1, "each epoch has its order"
    for start in range(EPOCHS):
        seen = list(chain(*whole[start * epoch : (start + 1) * epoch]))
        assert len(seen) == len(set(seen)) == rows // ranks * ranks
    for step in range(1, len(whole)):
        again = rows_of(rows, ranks, sharding, consumed=step * ranks, epochs=EPOCHS - step // epoch)
        assert again == whole[step:]
