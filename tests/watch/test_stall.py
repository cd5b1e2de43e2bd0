"""A phase that lasts too long: who is where since when."""

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.watch.journal import Journal, read_events
from swift_grpo_ext.watch.phases import Phases
from swift_grpo_ext.watch.stall import (
    EXIT_CODE,
    FIRST_LIMIT,
    LEAST_LIMIT,
    Beat,
    Watchdog,
    describe_stall,
    holders,
    in_words,
    limit_of,
    read_beats,
    write_beat,
)
from tests.asserted_modes import asserting_mode
from tests.watch.conftest import Run

REWARD = Beat(0, "reward", since=100, beat=200, where="at r.py:7 in score", pid=7, host="node")
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
    assert "rank 0 (pid 7 on node) gave no sign of life for 400 s" in in_words(REWARD, now=600)


def test_beats_are_read_back_and_those_of_an_earlier_run_are_passed_over(tmp_path):
    write_beat(tmp_path, REWARD)
    (tmp_path / "rank_1.json").write_text("{half")
    assert read_beats(tmp_path, ranks=2) == {0: REWARD}
    assert read_beats(tmp_path, ranks=2, not_before=201) == {}


def test_one_rank_tells_of_a_stall_and_each_that_is_in_it_writes_its_stacks(tmp_path):
    dogs = []
    for rank in (0, 1):
        phases = Phases()
        phases.rest_in("reward")
        dogs.append(Watchdog(phases, Journal(tmp_path, rank), 2, fixed_limit=0.01))
    time.sleep(0.02)
    for dog in [*dogs, *dogs]:
        dog.beat()
    (stall,) = read_events(tmp_path, ["stall"])
    assert stall["rank"] == 0
    assert "rank 0 in reward" in stall["text"]
    for rank in (0, 1):
        assert "test_one_rank_tells" in (tmp_path / f"watch/stall_rank_{rank}.txt").read_text()


def test_a_later_stall_is_told_with_the_ranks_that_are_in_none(tmp_path):
    stalled, other = (Watchdog(Phases(), Journal(tmp_path, rank), 2, fixed_limit=0.01) for rank in (1, 0))
    other.fixed_limit = 60
    for phase in ("reward", "rollout"):
        stalled.phases.rest_in(phase)
        time.sleep(0.02)
        other.beat()
        stalled.beat()
    stalls = read_events(tmp_path, ["stall"])
    assert [stall["phase"] for stall in stalls] == ["reward", "rollout"]
    assert all("rank 0 in start" in stall["text"] for stall in stalls)


def test_a_blocked_reward_is_told_with_its_place_and_the_run_goes_on(watched_run, tmp_path):
    run = watched_run("BlocksUntilTold", env={"STALL_SECONDS": "1"}, max_steps=2, add_version=False)
    # On a machine under load other phases may last a second too.
    of_reward = [event for event in run.events if event.get("phase") == "reward"]
    assert [event["kind"] for event in of_reward] == ["stall"]
    stall = of_reward[0]
    assert "faulty_rewards.py" in stall["text"]
    assert "faulty_rewards.py" in Path(stall["stacks"]).read_text()
    assert len(run.steps) == 2
    assert json.loads((run.folder / "watch/rank_0.json").read_text())["rank"] == 0
    assert not [thread for thread in threading.enumerate() if "watchdog" in thread.name]


HOLDS = """
import ctypes, sys, time
from pathlib import Path
from swift_grpo_ext.watch import stall
from swift_grpo_ext.watch.journal import Journal
from swift_grpo_ext.watch.phases import Phases

stall.HELD_LIMIT = 0.5
watchdog = stall.Watchdog(Phases(), Journal(sys.argv[1], 0), 1, fixed_limit=0.4)
watchdog.start()
time.sleep(0.5)
ctypes.PyDLL(None).usleep(2_000_000)  # as a pattern that never ends: no other thread of Python's runs
watchdog.stop()
time.sleep(1)
"""


def test_what_holds_the_interpreter_is_told_with_its_line(tmp_path):
    script = tmp_path / "holds.py"
    script.write_text(HOLDS)
    words = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Timeout (0:00:00.500000)!") == 1
    assert f'File "{script}", line 12 in <module>' in done.stderr


def test_a_crash_in_c_code_is_told_with_its_line(tmp_path):
    script = tmp_path / "crashes.py"
    script.write_text(HOLDS.replace("usleep(2_000_000)", "memcpy(0, 0, 8)"))
    words = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert f'File "{script}", line 12 in <module>' in done.stderr


@pytest.mark.slow
def test_a_dataloader_worker_that_dies_is_written_down(watched_run, tmp_path):
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        watched_run("KillsWorkers", dataloader_num_workers=1, max_steps=40)
    (failed,) = read_events(next(tmp_path.glob("v*")), ["failed"])
    assert "DataLoader worker" in failed["text"]


def test_ranks_that_wait_in_different_places_are_told():
    apart = {0: replace(WAITS, rank=0), 1: replace(WAITS, where="waiting for the other ranks in barrier")}
    assert "a collective that another never enters" in describe_stall("reward", 9, 2, apart, ranks=2, now=200)
    together = {0: replace(WAITS, rank=0), 1: WAITS}
    assert "never enters" not in describe_stall("reward", 9, 2, together, ranks=2, now=200)


def test_a_reward_that_raises_is_written_down(watched_run, tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_REWARD_FAILURES", "0")  # the first failure ends the run
    with pytest.raises(RewardError, match="boxes"):
        watched_run("Raises")
    (failed,) = read_events(next(tmp_path.glob("v*")), ["failed"])
    assert "KeyError('boxes')" in failed["text"]


@pytest.mark.parametrize(
    ("reward", "number"), [("Signals", signal.SIGTERM), ("SignalsInterrupt", signal.SIGINT)]
)
def test_a_signal_saves_the_step_and_ends(watched_run, reward, number, tmp_path):
    handler = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended:
        watched_run(reward, max_steps=6, save_strategy="steps", save_steps=100)
    assert ended.value.code == 128 + number
    run = Run(tmp_path)
    (stopped,) = [event for event in run.events if event["kind"] == "stopped"]
    assert stopped["step"] == 2
    assert len(run.steps) == 2
    assert (run.folder / "checkpoint-2/trainer_state.json").is_file()
    assert signal.getsignal(number) is handler


def hanging(model, digits, output, reward, ranks, **overrides):
    """A run of the real command that is to be ended for a stall."""
    plugin = __file__.replace("test_stall", "faulty_rewards")
    arguments = testing.grpo_arguments(
        model,
        digits.train,
        output,
        reward_funcs=f"test_{reward}",
        external_plugins=[plugin_file(), plugin],
        **{"max_steps": 6, "save_strategy": "steps", "save_steps": 1, **overrides},
    )
    words, env = asserting_mode(arguments, ranks)
    env |= {"SWIFT_GRPO_EXT_STALL_SECONDS": "8", "SWIFT_GRPO_EXT_ON_STALL": "abort"}
    return testing.run_swift("rlhf", words, ranks=ranks, env=env, timeout=280, check=False)


@pytest.mark.slow
def test_abort_names_the_newest_checkpoint_and_a_run_goes_on_from_it(tiny_qwen, digits, tmp_path):
    result = hanging(tiny_qwen, digits, tmp_path / "hung", "BlocksForEver", ranks=1)
    assert result.returncode == EXIT_CODE, result.tail[-2000:]
    folder = testing.newest_version(tmp_path / "hung")
    assert f"the run ends; newest whole checkpoint: {folder / 'checkpoint-2'}" in result.tail
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path / "resumed",
        reward_funcs="test_Good",
        external_plugins=[plugin_file(), __file__.replace("test_stall", "faulty_rewards")],
        max_steps=4,
        resume_from_checkpoint=folder / "checkpoint-2",
    )
    testing.run_in_process("rlhf", arguments)
    steps = [row for row in testing.read_logging(tmp_path / "resumed") if "loss" in row]
    assert [row["global_step/max_steps"] for row in steps] == ["3/4", "4/4"]


@pytest.mark.slow
@pytest.mark.two_ranks
def test_two_ranks_one_sleeps(tiny_qwen, digits, tmp_path):
    result = hanging(tiny_qwen, digits, tmp_path, "SleepsOnRank1", ranks=2)
    assert result.returncode != 0
    assert not result.timed_out
    stalls = read_events(next(tmp_path.glob("v*")), ["stall"])
    assert "the others wait for rank 1" in stalls[0]["text"]


@pytest.mark.slow
@pytest.mark.two_ranks
def test_two_ranks_one_never_enters_a_collective(tiny_qwen, digits, tmp_path):
    result = hanging(tiny_qwen, digits, tmp_path, "EntersAlone", ranks=2)
    assert result.returncode != 0
    assert not result.timed_out
    folder = next(tmp_path.glob("v*"))
    stalls = read_events(folder, ["stall"])
    assert "a collective that another never enters" in stalls[0]["text"]
    assert "faulty_rewards.py" in stalls[0]["text"]
    assert "EntersAlone" not in (folder / "watch/stall_rank_1.txt").read_text()
    assert (folder / "checkpoint-1/trainer_state.json").is_file(), "weights on every rank: rank 0 saved them"
