"""Streams in GRPO: a group is one prompt, on every rank, over epochs, and after a resumption."""

from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from trl.trainer.grpo_trainer import RepeatSampler

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.errors import DatasetRowError, RefusedError
from swift_grpo_ext.trainer.streams import GroupedStream, Plan, in_groups, refuse_single_use
from tests.forked import run_ranks


class Stream(IterableDataset):
    """Numbers, in an order that the epoch decides."""

    def __init__(self, size, shuffled=False, readings=None):
        self.size, self.shuffled, self.readings, self.epoch = size, shuffled, readings, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        if self.readings is not None:
            self.readings -= 1
            if self.readings < 0:
                return
        for number in range(self.size):
            yield {"number": (number * (1 + 2 * self.epoch)) % self.size if self.shuffled else number}


def numbers(batches):
    return [[row["number"] for row in batch] for batch in batches]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("rows", "prompts", "group", "repeats", "steps"), [(8, 2, 4, 1, 1), (8, 4, 2, 4, 2), (9, 2, 2, 6, 2)]
)
def test_order_is_that_of_a_dataset_with_a_length(ranks, rows, prompts, group, repeats, steps, monkeypatch):
    monkeypatch.setattr("swift_grpo_ext.trainer.streams.broadcast_object_list", lambda said: said)
    batch = prompts * group // ranks
    sampler = RepeatSampler(list(range(rows)), group, prompts, repeats, shuffle=False)
    flat = list(sampler)
    cut = [flat[start : start + batch] for start in range(0, len(flat), batch)]
    for rank in range(ranks):
        stream = GroupedStream(Stream(rows), Plan(prompts, group, repeats, batch, 0, ranks))
        # Both ranks read here: what one process reads and hands on is shown by the run of two ranks below.
        stream.plan = Plan(prompts, group, repeats, batch, 0, ranks)
        everyone = [row["number"] for row in islice(stream._rows(), len(flat))]
        mine = [everyone[start : start + batch] for start in range(0, len(everyone), batch)][rank::ranks]
        assert mine == cut[rank::ranks]


def test_the_next_epoch_is_shuffled_anew():
    stream = GroupedStream(Stream(8, shuffled=True), Plan(prompts=4, group=1, repeats=1, batch=4))
    first, second = numbers(islice(stream, 2)), numbers(islice(stream, 2, 4))
    assert (
        sorted(n for one in first for n in one) == sorted(n for one in second for n in one) == list(range(8))
    )
    assert first != second


def test_when_a_stream_is_read_changes_nothing_that_is_sampled():
    """Over the end of an epoch: the first rank reads for all, and ahead of the rollout."""
    args = SimpleNamespace(
        steps_per_generation=1,
        generation_batch_size=4,
        dataloader_num_workers=0,
        dataloader_prefetch_factor=None,
        seed=42,
    )
    trainer = SimpleNamespace(
        args=args,
        train_dataset=Stream(4),
        template=SimpleNamespace(sequence_parallel_size=1),
        num_generations=2,
        num_iterations=1,
        _train_batch_size=4,
        accelerator=SimpleNamespace(process_index=0, num_processes=1),
        is_in_train=True,
        data_collator=list,
        _get_collator_with_removed_columns=lambda collate, description: collate,
    )
    batches = iter(in_groups(trainer, stock=list))
    before = torch.get_rng_state()
    assert numbers(islice(batches, 3)) == [[0, 0, 1, 1], [2, 2, 3, 3], [0, 0, 1, 1]]
    assert torch.equal(torch.get_rng_state(), before)


def test_copies_of_a_row_are_not_one_object():
    (batch,) = islice(GroupedStream(Stream(2), Plan(prompts=1, group=3, repeats=1, batch=3)), 1)
    assert len({id(row) for row in batch}) == 3


@pytest.mark.parametrize(
    ("stream", "what"),
    [
        (Stream(3), "has 3 rows, and a generation batch needs 4"),
        (Stream(4, readings=1), "empty when it is read a second time"),
    ],
)
def test_a_stream_that_is_too_short_is_refused(stream, what):
    with pytest.raises(RefusedError, match=what):
        list(islice(GroupedStream(stream, Plan(prompts=4, group=1, repeats=1, batch=4)), 2))


def test_a_stream_for_one_reading_is_refused():
    once = iter([1, 2])
    with pytest.raises(RefusedError, match="read once only"):
        refuse_single_use(once)
    refuse_single_use(Stream(2))


def test_other_ranks_hear_of_an_error(monkeypatch):
    monkeypatch.setattr(
        "swift_grpo_ext.trainer.streams.broadcast_object_list",
        lambda said: said.__setitem__(1, "OSError: gone"),
    )
    stream = GroupedStream(Stream(4), Plan(prompts=1, group=1, repeats=1, batch=1, rank=1, ranks=2))
    with pytest.raises(DatasetRowError, match="cannot read the stream: OSError: gone"):
        next(iter(stream))


def test_a_worker_may_read():
    def read(rows):
        return iter(DataLoader(rows, batch_size=None, num_workers=1, collate_fn=lambda row: row))

    stream = GroupedStream(Stream(4), Plan(prompts=2, group=2, repeats=1, batch=4), read)
    assert numbers(islice(stream, 3)) == [[0, 0, 1, 1], [2, 2, 3, 3], [0, 0, 1, 1]]


@pytest.fixture
def questions(asking):
    return asking(f"number {n}" for n in range(7))


def arguments(model, questions, output, **overrides):
    options = {"streaming": True, "reward_funcs": "format", "per_device_train_batch_size": 8, "max_steps": 4}
    return testing.grpo_arguments(model, questions, output, **{**options, **overrides})


@pytest.fixture
def run(tiny_qwen, questions, asked, tmp_path):
    swift_grpo_ext.register()

    def start(name="out", **overrides):
        testing.run_in_process("rlhf", arguments(tiny_qwen, questions, tmp_path / name, **overrides))
        return asked(tmp_path / name)

    return start


def test_before_a_group_is_several_prompts(run, stock_trainer):
    assert all(len(set(group)) > 1 for group in run(max_steps=1, per_device_train_batch_size=4)[0])


def test_a_group_is_one_prompt(run):
    steps = run()
    assert len(steps) == 4
    for step in steps:
        assert [len(set(group)) for group in step] == [1, 1]
        assert step[0] != step[1]


def test_a_resumed_run_asks_what_the_whole_one_asked(run, tmp_path):
    """Seven rows, two a step: the fourth step is in the second epoch."""
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6, "num_iterations": 1}
    whole = run("whole", **options)
    checkpoint = testing.newest_version(tmp_path / "whole") / "checkpoint-2"
    resumed = run("resumed", **options, resume_from_checkpoint=checkpoint)
    assert len(whole) == 6
    assert resumed == whole[2:]


def test_dynamic_sampling_of_a_stream(run):
    (step,) = run(dynamic_sample=True, max_resample_times=1, max_steps=1)
    assert [len(set(group)) for group in step] == [1, 1]


@pytest.mark.two_ranks
def test_two_ranks_hold_parts_of_the_same_groups(tiny_qwen, questions, asked, tmp_path):
    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 2}
    run_ranks("rlhf", arguments(tiny_qwen, questions, tmp_path / "out", **options), timeout=240)
    steps = asked(tmp_path / "out")
    assert len(steps) == 2
    for step in steps:
        assert [len(set(group)) for group in step] == [1, 1]
        assert step[0] != step[1]
