"""What is read ahead is handed out as without it: in the same order, over short epochs, and in resumed runs."""

import threading
import time
from itertools import islice
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models.image_pipeline import PreparedImage
from swift_grpo_ext.trainer import look_ahead
from swift_grpo_ext.trainer.look_ahead import LookAhead

PREPARED = PreparedImage((28, 28), (28, 28), {}, [])


class Images:
    """A template's images; ``prepare`` is called for each."""

    def __init__(self, prepare):
        self.store = SimpleNamespace(limit=2**20)
        self._prepare = prepare

    def prepare_all(self, sources, options):
        for source in sources:
            self._prepare(source)
        return [PREPARED]


@pytest.fixture
def ahead_of(monkeypatch):
    """Looks ahead for a run of such steps, and prepares images by a function."""
    monkeypatch.setattr(look_ahead, "why_not_ahead", lambda template: "")
    made = []

    def build(prepare, accumulation=1, per_generation=1, iterations=1, max_steps=1000):
        template = SimpleNamespace(
            images=Images(prepare), sequence_parallel_size=1, resize_options=lambda columns: {}
        )
        args = SimpleNamespace(steps_per_generation=per_generation, gradient_accumulation_steps=accumulation)
        state = SimpleNamespace(max_steps=max_steps, global_step=0)
        host = SimpleNamespace(_step=0, args=args, num_iterations=iterations, template=template, state=state)
        made.append(LookAhead(host))
        return host, made[-1]

    yield build
    for ahead in made:
        ahead.close()


def epoch(generations, repeats, name, start=0):
    """Batches of an epoch as the dataloader gives them: each generation's rows for each of its micro-batches."""
    rows = [[{"images": [f"{name} {number}.png"], "messages": []}] for number in range(generations)]
    return [batch for batch in rows for _ in range(repeats)][start:]


def generated(host, epochs, over=iter):
    """First batches of the generations of a run, as ms-swift and transformers take them."""
    repeats = host.args.steps_per_generation * host.num_iterations
    host._step = host.state.global_step = 0
    used = []
    for batches in epochs:
        source = iter(batches)
        while host.state.global_step < host.state.max_steps:
            of_step = list(islice(over(source), host.args.gradient_accumulation_steps))
            if not of_step:
                break
            for batch in of_step:
                if host._step % repeats == 0:
                    used.append(batch)
                host._step += 1
            host.state.global_step += 1
    return used


@given(
    accumulation=st.integers(1, 3),
    steps=st.integers(1, 2),
    iterations=st.integers(1, 2),
    lengths=st.lists(st.integers(0, 4), max_size=4),
    max_steps=st.integers(1, 20),
    resumed=st.integers(0, 3),
)
def test_the_same_batches_are_generated_from(
    ahead_of, accumulation, steps, iterations, lengths, max_steps, resumed
):
    """Epochs shorter than what is read ahead, empty ones, and the first from its middle, where a run resumes."""
    host, ahead = ahead_of(lambda source: None, accumulation, accumulation * steps, iterations, max_steps)
    repeats = accumulation * steps * iterations
    epochs = [
        epoch(length, repeats, number, start=0 if number else resumed)
        for number, length in enumerate(lengths)
    ]
    assert generated(host, epochs, ahead.over) == generated(host, epochs)


def test_all_but_the_first_of_each_epoch_is_prepared_and_nothing_behind_the_last_step(ahead_of):
    prepared = []
    host, ahead = ahead_of(prepared.append, per_generation=2, accumulation=2, max_steps=5)
    used = generated(host, [epoch(2, 2, "first"), epoch(4, 2, "second")], ahead.over)
    ahead._threads.shutdown()
    assert [rows[0]["images"] for rows in used] == [
        ["first 0.png"],
        ["first 1.png"],
        ["second 0.png"],
        ["second 1.png"],
        ["second 2.png"],
    ]
    assert sorted(prepared) == ["first 1.png", "second 1.png", "second 2.png"]


def test_a_source_is_read_no_further_than_the_next_generation(ahead_of):
    read = []

    def rows():
        for number in range(100):
            read.append(number)
            yield [{"images": [f"{number}.png"], "messages": []}]

    host, ahead = ahead_of(lambda source: None, accumulation=2, per_generation=2)
    source = rows()
    for step in range(1, 5):
        assert len(list(islice(ahead.over(source), 2))) == 2
        assert len(read) == 2 * step + 2
        host._step += 2


def test_an_image_that_fails_leaves_the_others_and_the_batches_as_they_are(ahead_of):
    prepared = []

    def prepare(source):
        if source == "1.png":
            raise DatasetRowError("cannot be read", where=source)
        prepared.append(source)

    host, ahead = ahead_of(prepare)
    batches = [[{"images": [f"{number}.png"], "messages": []}] for number in range(4)]
    assert generated(host, [batches], ahead.over) == batches
    ahead._threads.shutdown()
    assert sorted(prepared) == ["2.png", "3.png"]


def test_images_ahead_take_half_of_the_store_at_most(ahead_of):
    """But for one of each thread, which begins while there is still room."""
    prepared = []
    host, ahead = ahead_of(prepared.append)
    of_image = 4 * 2 * 28 * 28  # bytes of its pixels as they are and resized
    host.template.images.store.limit = 2 * 3 * of_image
    rows = [[{"images": [f"{number}.png"], "messages": []} for number in range(40)]] * 2
    assert generated(host, [rows], ahead.over) == rows
    ahead._threads.shutdown()
    assert 3 <= len(prepared) <= 3 + look_ahead.THREADS


def test_a_run_that_ends_waits_for_no_image_and_begins_no_other(ahead_of):
    begun, may_end = [], threading.Event()

    def prepare(source):
        begun.append(source)
        may_end.wait(60)

    _host, ahead = ahead_of(prepare)
    rows = [{"images": [f"{number}.png"], "messages": []} for number in range(20)]
    next(ahead.over(iter([rows, rows, rows])))
    deadline = time.monotonic() + 60
    while len(begun) < look_ahead.THREADS and time.monotonic() < deadline:
        time.sleep(0.01)
    threads = ahead._threads
    started = time.monotonic()
    ahead.close()
    took = time.monotonic() - started
    may_end.set()
    threads.shutdown()
    assert took < 5
    assert len(begun) == look_ahead.THREADS
