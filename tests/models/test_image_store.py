"""Computed once, shared between threads, bounded."""

import copy
import gc
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models import image_pipeline
from swift_grpo_ext.models.image_pipeline import PreparedImageCache


def test_threads_that_ask_at_once_share_one_result():
    store, started, made = PreparedImageCache(100), threading.Barrier(8), []

    def ask(_):
        started.wait()
        return store.get("key", lambda: made.append(1) or object(), lambda _: 1)

    with ThreadPoolExecutor(8) as threads:
        results = set(map(id, threads.map(ask, range(8))))
    assert len(made) == len(results) == 1
    assert (store.counts.made, store.counts.reused) == (1, 7)


@given(limit=st.integers(0, 50), asked=st.lists(st.integers(0, 9), max_size=60))
def test_never_more_bytes_than_the_limit_and_always_the_right_result(limit, asked):
    store = PreparedImageCache(limit)
    for key in asked:
        assert store.get(key, lambda key=key: f"result {key}", lambda _, key=key: key * 3) == f"result {key}"
        assert 0 <= store.counts.held_bytes <= limit
    assert store.counts.made + store.counts.reused == len(asked)


def test_the_least_recently_used_goes_first():
    store = PreparedImageCache(2)
    for key in ("a", "b", "a", "c"):
        store.get(key, object, lambda _: 1)
    made = store.counts.made
    store.get("a", lambda: "a", lambda _: 1)
    assert store.counts.made == made, "a was used after b"
    store.get("b", lambda: "b", lambda _: 1)
    assert store.counts.made == made + 1


def test_a_broken_row_fails_again_at_once_and_other_errors_are_tried_again():
    store, tries = PreparedImageCache(10), []

    def fail(error):
        tries.append(1)
        raise error

    for _ in range(3):
        with pytest.raises(DatasetRowError, match="missing"):
            store.get("row", lambda: fail(DatasetRowError("missing")), lambda _: 1)
    assert len(tries) == 1
    for _ in range(2):
        with pytest.raises(MemoryError):
            store.get("memory", lambda: fail(MemoryError()), lambda _: 1)
    assert len(tries) == 3
    assert store.get("memory", lambda: "now it works", lambda _: 1) == "now it works"


def test_copies_in_the_process_share_and_those_in_others_start_empty():
    store = PreparedImageCache(10)
    store.get("key", lambda: 1, lambda _: 1)
    assert copy.deepcopy(store) is store
    other = pickle.loads(pickle.dumps(store))
    assert (other.limit, other.counts.made) == (10, 0)


def test_a_kept_failure_holds_nothing_of_the_broken_file_and_does_not_grow():
    class Content:
        pass

    def fail(content):
        raise DatasetRowError("cannot be decoded", where="a.png", fix="fix it")

    def ask(content):
        with pytest.raises(DatasetRowError, match=r"cannot be decoded \[a.png\] -> fix it") as told:
            store.get("row", lambda: fail(content), lambda _: 1)
        return len(told.traceback)

    store, content = PreparedImageCache(10), Content()
    alive = weakref.ref(content)
    ask(content)
    del content
    gc.collect()
    assert alive() is None
    assert ask(None) == ask(None), "the traceback of an error that is told again does not grow"


def test_failures_are_forgotten_after_their_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(image_pipeline.time, "monotonic", lambda: clock[0])
    store = PreparedImageCache(10)

    def fail():
        raise DatasetRowError("missing")

    for key in range(5):
        with pytest.raises(DatasetRowError):
            store.get(key, fail, lambda _: 1)
        clock[0] += 50
    assert set(store._failed) == {3, 4}, "of the last minute alone"
