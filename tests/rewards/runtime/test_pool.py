import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.runtime.pool import Pool
from tests.rewards.jobs import CannotLoad, do


@pytest.fixture(scope="module")
def pool():
    pool = Pool(do, 2.0, workers=2)
    asked(pool, [("return", 0)])
    yield pool
    pool.close()


def asked(pool, requests):
    """The answers in the order of the requests."""
    answers = dict(pool.answers(requests))
    return [answers[number] for number in range(len(requests))]


def test_answers_come_in_order(pool):
    answers = asked(pool, [("return", number) for number in range(50)])
    assert [answer.value for answer in answers] == list(range(50))
    assert {answer.ended for answer in answers} == {"value"}


def test_nothing_to_do(pool):
    assert asked(pool, []) == []


@pytest.mark.parametrize("what", ["hang", "spin", "regex"])
def test_a_hung_job_costs_its_limit_and_no_other_job(pool, what):
    started = time.monotonic()
    answers = asked(pool, [("return", 1), (what,), *[("return", number) for number in range(10)]])
    assert [answer.ended for answer in answers] == ["value", "timeout", *["value"] * 10]
    assert answers[1].value == "no answer within 2 s"
    assert time.monotonic() - started < 120, "a hung job sleeps for an hour"


def test_a_job_that_raises_gives_its_traceback_and_the_child_lives_on(pool):
    before = pids(pool)
    for _ in range(3):
        (answer,) = asked(pool, [("raise", "why")])
        assert answer.ended == "error"
        assert answer.value == "ValueError('why')"
        assert answer.traceback.strip().endswith("ValueError: why")
    assert pids(pool) == before


def pids(pool):
    """Process ids of both workers: each sleeps long enough for the other to take the next request."""
    return {answer.value for answer in asked(pool, [("slow_pid",)] * 4)}


@pytest.mark.parametrize(("death", "code"), [(("exit", 3), 3), (("kill",), -9)])
def test_a_child_that_dies_is_replaced(pool, death, code):
    answers = asked(pool, [death, ("return", 1)])
    assert [answer.ended for answer in answers] == ["error", "value"]
    assert answers[0].value == f"the child process ended with {code}"


def test_an_exit_is_an_error(pool):
    answers = asked(pool, [("sys.exit",), ("return", 1)])
    assert [answer.ended for answer in answers] == ["error", "value"]
    assert "SystemExit" in answers[0].value


def test_printing_does_not_disturb_the_answers(pool):
    assert asked(pool, [("print", "noise")])[0].value == "noise"


def test_children_are_no_ranks_and_have_no_gpu(pool, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("MASTER_PORT", "1234")
    fresh = Pool(do, 5.0, workers=1)
    values = [
        answer.value
        for answer in asked(
            fresh, [("variable", name) for name in ("RANK", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")]
        )
    ]
    fresh.close()
    assert values == [None, None, ""]


def test_texts_that_are_no_utf8_arrive(pool):
    text = "\ud800\x00🐕" * 1000
    assert asked(pool, [("return", text)])[0].value == text


def test_after_some_kills_the_rest_of_a_batch_is_skipped():
    pool = Pool(do, 0.5, workers=1, kills=2)
    started = time.monotonic()
    answers = asked(pool, [("raise", "x"), *[("hang",)] * 18, ("return", 1)])
    assert [answer.ended for answer in answers] == ["error", "timeout", "timeout", *["skipped"] * 17]
    assert answers[-1].value == "not asked, since 2 others of its batch were killed"
    assert time.monotonic() - started < 60
    assert asked(pool, [("return", 1)])[0].value == 1, "the next batch is asked"
    pool.close()


def test_a_killed_worker_is_replaced_in_a_moment():
    """It is forked from a process that has imported everything."""
    pool = Pool(do, 0.3, workers=1)
    assert asked(pool, [("return", 1)])[0].value == 1
    started = time.monotonic()
    answers = asked(pool, [("regex",), ("return", 1)] * 5)
    assert [answer.ended for answer in answers] == ["timeout", "value"] * 5
    assert time.monotonic() - started < 15, "an import of the reward each time takes longer"
    pool.close()


def test_beside_a_loaded_torch_with_threads():
    import torch

    torch.set_num_threads(2)
    (torch.rand(500, 500) @ torch.rand(500, 500)).sum().item()
    pool = Pool(do, 1.0, workers=2)
    answers = asked(pool, [("regex",), ("modules", "torch"), ("return", 1)])
    assert [answer.ended for answer in answers] == ["timeout", "value", "value"]
    assert answers[1].value is False
    pool.close()


def test_after_an_interruption_no_old_answer_is_taken_for_a_new_one(pool):
    def interrupt():
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        asked(pool, [("hang",)])
    assert [answer.value for answer in asked(pool, [("return", "a"), ("return", "b")])] == ["a", "b"]


def test_a_job_that_cannot_be_loaded_is_an_error_with_its_reason():
    with pytest.raises(RewardError, match="ImportError: no such thing"):
        asked(Pool(CannotLoad(), 1.0, workers=1), [()])


def test_a_request_that_cannot_be_pickled_is_an_error(pool):
    with pytest.raises(RewardError, match="cannot be sent"):
        asked(pool, [("return", lambda: None)])


def test_it_works_from_many_threads(pool):
    found = {}

    def work(number):
        found[number] = [answer.value for answer in asked(pool, [("return", number)] * 5)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number] * 5 for number in range(4)}


def _spawned(pipe):
    pool = Pool(do, 5.0, workers=1)
    pipe.send(asked(pool, [("return", 1)])[0].value)
    pool.close()


def test_it_works_in_a_spawned_daemon():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_spawned, args=(theirs,), daemon=True)
    process.start()
    assert ours.poll(120)
    assert ours.recv() == 1
    process.join(30)


@pytest.mark.parametrize("busy_with", ["hang", "regex"])
def test_no_child_outlives_its_parent(busy_with):
    import subprocess
    import sys

    script = (
        "import os, sys, threading, time; sys.path.insert(0, 'tests'); from rewards.jobs import do;"
        "from swift_grpo_ext.rewards.runtime.pool import Pool;"
        "pool = Pool(do, 500.0, workers=1); print(*[a.value for _, a in pool.answers([('pid',)])], flush=True);"
        f"threading.Thread(target=lambda: list(pool.answers([('{busy_with}',)])), daemon=True).start();"
        "time.sleep(0.5); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    child = int(done.stdout)
    for _ in range(100):
        status = Path(f"/proc/{child}/status")
        if not status.exists() or "\nState:\tZ" in status.read_text():
            return
        time.sleep(0.1)
    pytest.fail(f"child {child} lives on")
