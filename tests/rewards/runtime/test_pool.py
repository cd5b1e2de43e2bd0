import multiprocessing
import threading
import time
from pathlib import Path

import pytest

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime.pool import Pool
from tests.rewards.jobs import CannotLoad, Does


@pytest.fixture(scope="module")
def pool():
    pool = Pool(Does(), workers=2, limit=2.0)
    pool.map([("return", 0)])
    yield pool
    pool.close()


def test_answers_come_in_order(pool):
    answers = pool.map([("return", number) for number in range(50)])
    assert [answer.value for answer in answers] == list(range(50))
    assert {answer.ended for answer in answers} == {"value"}


def test_nothing_to_do(pool):
    assert pool.map([]) == []


@pytest.mark.parametrize("what", ["hang", "spin"])
def test_a_hung_job_costs_its_limit_and_no_other_job(pool, what):
    started = time.monotonic()
    answers = pool.map([("return", 1), (what,), *[("return", number) for number in range(10)]])
    assert [answer.ended for answer in answers] == ["value", "timeout", *["value"] * 10]
    assert answers[1].value == "no answer within 2 s"
    assert 2.0 <= answers[1].seconds < 60
    assert time.monotonic() - started < 120, "a hung job sleeps for an hour"


def test_a_job_that_raises_gives_its_traceback_and_the_child_lives_on(pool):
    (before,) = pool.map([("pid",)])
    for _ in range(3):
        (answer,) = pool.map([("raise", "why")])
        assert answer.ended == "failed"
        assert answer.value.strip().endswith("ValueError: why")
    assert pool.map([("pid",)])[0].value in {before.value} | {child.process.pid for child in pool.children}


def test_a_child_that_dies_is_replaced(pool):
    answers = pool.map([("exit", 3), ("return", 1)])
    assert [answer.ended for answer in answers] == ["died", "value"]
    assert answers[0].value == "the child process ended with 3"


def test_printing_does_not_disturb_the_answers(pool):
    assert pool.map([("print", "noise")])[0].value == "noise"


def test_children_are_no_ranks_and_have_no_gpu(pool, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("MASTER_PORT", "1234")
    fresh = Pool(Does(), workers=1, limit=5.0)
    values = [
        answer.value
        for answer in fresh.map(
            [("variable", name) for name in ("RANK", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")]
        )
    ]
    fresh.close()
    assert values == [None, None, ""]


def test_texts_that_are_no_utf8_arrive(pool):
    text = "\ud800\x00🐕" * 1000
    assert pool.map([("return", text)])[0].value == text


def test_after_too_many_failures_the_rest_is_skipped(pool):
    answers = pool.map([("raise", "x")] * 20, give_up_after=3)
    ended = [answer.ended for answer in answers]
    assert ended[0] == "failed"
    assert ended.count("skipped") >= 10


def test_after_an_interruption_no_old_answer_is_taken_for_a_new_one(pool):
    with pytest.raises(KeyboardInterrupt):
        pool.map([("hang",), ("interrupt",)])
    assert [answer.value for answer in pool.map([("return", "a"), ("return", "b")])] == ["a", "b"]


def test_a_job_that_cannot_be_loaded_is_an_error_with_its_reason():
    with pytest.raises(RewardError, match="ImportError: no such thing"):
        Pool(CannotLoad(), workers=1, limit=1.0).map([()])


def test_a_request_that_cannot_be_pickled_is_an_error(pool):
    with pytest.raises(RewardError, match="cannot be sent"):
        pool.map([("return", lambda: None)])


def test_it_works_from_many_threads(pool):
    found = {}

    def work(number):
        found[number] = [answer.value for answer in pool.map([("return", number)] * 5)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number] * 5 for number in range(4)}


def _in_a_process(pool, pipe):
    pipe.send([answer.value for answer in pool.map([("return", 1), ("pid",)])])


def test_a_forked_process_starts_its_own_children(pool):
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_in_a_process, args=(pool, theirs))
    process.start()
    assert ours.poll(60)
    value, pid = ours.recv()
    process.join(30)
    assert value == 1
    assert pid not in {child.process.pid for child in pool.children}
    assert pool.map([("return", 2)])[0].value == 2


def _spawned(pipe):
    pool = Pool(Does(), workers=1, limit=5.0)
    pipe.send(pool.map([("return", 1)])[0].value)
    pool.close()


def test_it_works_in_a_spawned_daemon():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_spawned, args=(theirs,), daemon=True)
    process.start()
    assert ours.poll(120)
    assert ours.recv() == 1
    process.join(30)


def test_no_child_outlives_its_parent():
    import subprocess
    import sys

    script = (
        "import os, sys; sys.path.insert(0, 'tests'); from rewards.jobs import Does;"
        "from swift_grpo_ext.rewards.runtime.pool import Pool;"
        "pool = Pool(Does(), 1, 5.0); print(pool.map([('pid',)])[0].value, flush=True);"
        "pool.children[0].pipe.send_bytes(__import__('pickle').dumps(('hang',))); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    child = int(done.stdout)
    for _ in range(100):
        status = Path(f"/proc/{child}/status")
        if not status.exists() or "\nState:\tZ" in status.read_text():
            return
        time.sleep(0.1)
    pytest.fail(f"child {child} lives on")
