"""What outlives the preparation of a generation batch: names of its rows, and no pixels."""

import gc
from types import SimpleNamespace

import torch
from swift.rl_core.data import GRPOBatch

from swift_grpo_ext.trainer.batches import BatchRecords
from swift_grpo_ext.trainer.samples import VisionSample

HOST = SimpleNamespace(
    template=SimpleNamespace(sequence_parallel_size=1),
    split_by_mini_batches=lambda samples: [samples[:1], samples[1:]],
)


def micro_batch():
    return GRPOBatch(*[torch.ones(1, 1, dtype=torch.bool)] * 3)


def test_samples_are_kept_for_their_names_alone():
    samples = [VisionSample([number], encoded={"pixel_values": number}) for number in range(3)]
    made, batches = BatchRecords(), [micro_batch(), micro_batch()]
    with made.preparing(HOST, samples):
        assert [made.phase_of(batch, True) for batch in batches] == ["old", "old"]
        assert [made.phase_of(batch, True) for batch in batches] == ["reference", "reference"]
        assert made.phase_of(batches[0], False) == "logps"
    chunks = [made.of(batch).samples for batch in batches]
    assert [[sample.messages for sample in chunk] for chunk in chunks] == [[[0]], [[1], [2]]]
    assert all(sample.encoded is None for chunk in chunks for sample in chunk)
    assert all(sample.encoded for sample in samples)


def test_what_is_known_of_a_micro_batch_goes_with_it():
    made, batch = BatchRecords(), micro_batch()
    made.of(batch).samples = ("one",)
    assert made.of(batch).samples == ("one",)
    del batch
    gc.collect()
    assert not len(made)
