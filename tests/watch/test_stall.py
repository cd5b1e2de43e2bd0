"""A phase that lasts too long: who is where since when."""

import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.watch.heartbeat import Beat, holders, in_words, read_beats, write_beat
from swift_grpo_ext.watch.journal import Journal, read_events
from swift_grpo_ext.watch.phases import Phases
from swift_grpo_ext.watch.stall import FIRST_LIMIT, LEAST_LIMIT, Watchdog, describe_stall, limit_of

REWARD = Beat(rank=0, step=3, phase="reward", since=100, beat=200, where="at r.py:7 in score")
WAITS = replace(REWARD, rank=1, where="waiting for the other ranks in all_gather, called from t.py:9 in log")


def test_limits_are_set_or_learned():
    assert limit_of("reward", {"reward": 1000.0}, 7) == 7
    assert limit_of("reward", {}, None) == FIRST_LIMIT
    assert limit_of("reward", {"reward": 1.0}, None) == LEAST_LIMIT
    assert limit_of("reward", {"reward": 100.0}, None) == 500


def test_the_rank_that_does_not_wait_is_blamed():
    assert holders({0: REWARD, 1: WAITS}) == [0]
    assert holders({0: REWARD}) == []
    text = describe_stall("reward", 100, 20, {0: REWARD, 1: WAITS}, ranks=3, now=200)
    assert text == (
        "phase reward has lasted 100 s, the limit is 20 s: rank 0 in reward for 100 s, at r.py:7 in score; "
        "rank 1 in reward for 100 s, waiting for the other ranks in all_gather, called from t.py:9 in log; "
        "no sign of life from rank 2; the others wait for rank 0"
    )
    assert "rank 0 (pid 0 on ) gave no sign of life for 400 s" in in_words(REWARD, now=600)


def test_beats_are_read_back_and_those_of_an_earlier_run_are_passed_over(tmp_path):
    write_beat(tmp_path, REWARD)
    (tmp_path / "rank_1.json").write_text("{half")
    assert read_beats(tmp_path, ranks=2)[0].pid == os.getpid()
    assert read_beats(tmp_path, ranks=2, not_before=201) == {}


def test_every_rank_writes_its_stacks_and_one_tells(tmp_path):
    dogs = []
    for rank in (0, 1):
        phases = Phases()
        if rank == 0:
            phases.rest_in("reward")
            limit = 0.2
        else:
            limit = 60
        dogs.append(Watchdog(phases, Journal(tmp_path, rank), 2, fixed_limit=limit))
    dogs[1]._interval = 0.05
    for dog in dogs:
        dog.start()
    time.sleep(1.5)
    for dog in dogs:
        dog.stop()
    stalls = read_events(tmp_path, ["stall"])
    assert [stall["rank"] for stall in stalls] == [0]
    assert "rank 0 in reward" in stalls[0]["text"]
    assert "rank 1 in start" in stalls[0]["text"]
    for rank in (0, 1):
        assert "test_every_rank_writes" in (tmp_path / f"watch/stall_1_rank_{rank}.txt").read_text()


@pytest.mark.slow  # its sleep of seconds is held against a watch of one second: needs a quiet machine
def test_a_blocked_reward_is_told_with_its_place_and_the_run_goes_on(watched_run):
    run = watched_run("Sleeps", env={"STALL_SECONDS": "1"}, max_steps=2)
    (stall,) = [event for event in run.events if event["kind"] == "stall"]
    assert stall["phase"] == "reward"
    assert "faulty_rewards.py" in stall["text"]
    assert "faulty_rewards.py" in (run.folder / "watch/stall_1_rank_0.txt").read_text()
    assert [event["kind"] for event in run.events if event["kind"].startswith("stall")] == [
        "stall",
        "stall-over",
    ]
    assert json.loads((run.folder / "watch/rank_0.json").read_text())["rank"] == 0
    assert not [thread for thread in threading.enumerate() if "watchdog" in thread.name]


def test_a_reward_that_raises_is_written_down_with_its_phase(watched_run, tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_REWARD_FAILURES", "0")  # the first failure ends the run
    with pytest.raises(RewardError, match="boxes"):
        watched_run("Raises")
    (failed,) = read_events(next(tmp_path.glob("v*")), ["failed"])
    assert failed["phase"] == "reward"
    assert "KeyError('boxes')" in failed["text"]


@pytest.mark.parametrize(
    ("reward", "number"), [("Signals", signal.SIGTERM), ("SignalsInterrupt", signal.SIGINT)]
)
def test_a_signal_saves_the_step_and_ends(watched_run, reward, number):
    handler = signal.getsignal(number)
    run = watched_run(reward, max_steps=6, save_strategy="steps", save_steps=100)
    (stopped,) = [event for event in run.events if event["kind"] == "stopped"]
    assert stopped["step"] == 2
    assert len(run.steps) == 2
    assert (run.folder / "checkpoint-2/trainer_state.json").is_file()
    assert signal.getsignal(number) is handler


@pytest.mark.slow
@pytest.mark.two_ranks
def test_two_ranks_one_sleeps(tiny_qwen, digits, tmp_path):
    from swift_grpo_ext.plugin_files import plugin_file

    plugin = __file__.replace("test_stall", "faulty_rewards")
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path,
        reward_funcs="test_SleepsOnRank1",
        external_plugins=[plugin_file(), plugin],
    )
    env = {"SWIFT_GRPO_EXT_STALL_SECONDS": "8", "SWIFT_GRPO_EXT_ON_STALL": "abort"}
    result = testing.run_swift("rlhf", arguments, ranks=2, env=env, timeout=280, check=False)
    assert result.returncode != 0
    assert not result.timed_out
    stalls = read_events(next(tmp_path.glob("v*")), ["stall"])
    assert "the others wait for rank 1" in stalls[0]["text"]
