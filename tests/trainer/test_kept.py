"""What outlives the preparation of a generation batch: names of its rows, and no pixels."""

from types import SimpleNamespace

from swift_grpo_ext.trainer.tracing import Tracing


class Host:
    template = SimpleNamespace(sequence_parallel_size=1)

    def _prepare_batch_inputs(self, samples):
        return []

    def split_by_mini_batches(self, samples):
        return [samples[:1], samples[1:]]


class Traced(Tracing, Host):
    def __init__(self):
        self._traces = True


def test_samples_are_kept_for_their_names_alone():
    trainer = Traced()
    samples = [SimpleNamespace(messages=[number], encoded={"pixel_values": number}) for number in range(3)]
    trainer._prepare_batch_inputs(samples)
    assert [[sample.messages for sample in chunk] for chunk in trainer._chunks] == [[[0]], [[1], [2]]]
    assert all(sample.encoded is None for chunk in trainer._chunks for sample in chunk)
    assert all(sample.encoded for sample in samples)
