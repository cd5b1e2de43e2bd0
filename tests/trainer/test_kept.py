"""What outlives the preparation of a generation batch: names of its rows, and no pixels."""

import gc
from types import SimpleNamespace

import torch
from swift.rl_core.data import GRPOBatch

from swift_grpo_ext.trainer.batches import Batches
from swift_grpo_ext.trainer.passes import Passes
from swift_grpo_ext.trainer.samples import VisionSample


def passes():
    """Those of a trainer that is not built."""
    made = object.__new__(Passes)
    template = SimpleNamespace(sequence_parallel_size=1)
    split = lambda samples: [samples[:1], samples[1:]]  # noqa: E731
    made._host = SimpleNamespace(
        template=template,
        split_by_mini_batches=split,
        accelerator=SimpleNamespace(unwrap_model=lambda model: model),
        model=None,
        ref_model=None,
    )
    made._batches, made._coming = Batches(), None
    return made


def micro_batch():
    return GRPOBatch(*[torch.ones(1, 1, dtype=torch.bool)] * 3)


def test_samples_are_kept_for_their_names_alone():
    policy = None
    samples = [VisionSample([number], encoded={"pixel_values": number}) for number in range(3)]
    made, batches = passes(), [micro_batch(), micro_batch()]
    with made.preparing(samples):
        assert [made.phase_of(policy, batch) for batch in batches] == ["old", "old"]
        assert [made.phase_of(policy, batch) for batch in batches] == ["reference", "reference"]
    chunks = [made.known_of(batch).samples for batch in batches]
    assert [[sample.messages for sample in chunk] for chunk in chunks] == [[[0]], [[1], [2]]]
    assert all(sample.encoded is None for chunk in chunks for sample in chunk)
    assert all(sample.encoded for sample in samples)


def test_what_is_known_of_a_micro_batch_goes_with_it():
    made, batch = passes(), micro_batch()
    made._batches.of(batch).samples = ("one",)
    assert made.known_of(batch).samples == ("one",)
    del batch
    gc.collect()
    assert not len(made._batches)
