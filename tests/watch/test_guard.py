"""What only watches may neither end a run nor slow it: each guarded part fails and hangs in real runs."""

import threading
import time
from contextlib import contextmanager

import pytest

from swift_grpo_ext.testing import newest_version
from swift_grpo_ext.trainer import grpo
from swift_grpo_ext.watch.guard import PARTS, SECONDS, Guard
from swift_grpo_ext.watch.stall import Watchdog
from tests.trainer.runs import figures, told

# Names that are handed to the guard itself, without a decorator.
NAMED = {
    "monitors",
    "set-up of the monitors",
    "held-out rewards",
    "gains.json",
    "watchdog",
}
# Without a tracker, an error, a signal, a reference model and held-out rows they have nothing to do.
ELSEWHERE = {"events", "how to resume", "mean of kl", "held-out rewards"}
# Without these others are not reached.
FIRST = {"monitors", "set-up of the monitors", "start of the monitors"}
RUN = {"beta": 0, "log_completions": True, "save_strategy": "steps", "save_steps": 1, "logging_steps": 1}
TRAINED = ("loss", "grad_norm", "reward")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@contextmanager
def faulty(monkeypatch, fault, strikes):
    """Let the parts that are struck meet a fault before they do their work; names of all that were reached."""
    reached = set()
    attempt = Guard._attempt

    def attempted(guard, name, action, reads_device):
        def struck():
            reached.add(name)
            if strikes(name):
                fault(guard)
            return action()

        return attempt(guard, name, struck, reads_device)

    with monkeypatch.context() as patch:
        patch.setattr(Guard, "_attempt", attempted)
        yield reached


def raises(guard):
    raise ValueError("injected\nand a second line")


def hangs(guard):
    """The guard's clock goes on by 10 s; nobody waits for it, and no other part has more time for it."""
    clock = guard._clock
    guard._clock = lambda: clock() + 10
    guard._started += 10


def sleeps(guard):
    time.sleep(10)


@pytest.fixture(scope="module")
def healthy(tiny_qwen, digits, tmp_path_factory):
    return trained(figures(tiny_qwen, digits.train, tmp_path_factory.mktemp("healthy"), **RUN))


def trained(figures_of_run):
    return {name: figures_of_run[name] for name in TRAINED}


@pytest.mark.parametrize(("fault", "why"), [(raises, "ValueError: injected ("), (hangs, "it took ")])
def test_a_run_goes_on_when_all_parts_fail(fault, why, healthy, tiny_qwen, digits, tmp_path, monkeypatch):
    with faulty(monkeypatch, fault, lambda part: part not in FIRST) as reached, told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path, **RUN)
    assert reached == (set(PARTS) | NAMED) - ELSEWHERE
    for part in reached - FIRST:
        (line,) = [text for text in messages if text.startswith(f"swift-grpo-ext: {part} turned off")]
        assert why in line
        assert "\n" not in line
    assert trained(ours) == healthy
    assert not [thread for thread in threading.enumerate() if isinstance(thread, Watchdog)]
    assert (newest_version(tmp_path) / "checkpoint-2" / "trainer_state.json").is_file()


@pytest.mark.parametrize("part", sorted(FIRST))
def test_a_run_goes_on_without_monitors(part, healthy, tiny_qwen, digits, tmp_path, monkeypatch):
    with faulty(monkeypatch, raises, lambda name: name == part), told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path, **RUN)
    assert any(f" {part} turned off" in text for text in messages)
    assert trained(ours) == healthy


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", [raises, sleeps])
@pytest.mark.parametrize("part", sorted((set(PARTS) | NAMED) - ELSEWHERE))
def test_a_run_goes_on_when_a_part_fails(part, fault, healthy, tiny_qwen, digits, tmp_path, monkeypatch):
    with faulty(monkeypatch, fault, lambda name: name == part), told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path, **RUN)
    assert any(f" {part} turned off" in text for text in messages)
    assert trained(ours) == healthy


@pytest.mark.slow
def test_the_mean_of_kl_is_ms_swifts_where_ours_fails(tiny_qwen, digits, tmp_path, monkeypatch):
    with faulty(monkeypatch, raises, lambda part: part == "mean of kl") as reached:
        ours = figures(tiny_qwen, digits.train, tmp_path, beta=0.04)
    assert "mean of kl" in reached
    assert len(ours["kl"]) == len(ours["loss"])


def test_the_error_of_a_run_is_its_own_where_what_watches_fails(tiny_qwen, digits, tmp_path, monkeypatch):
    def out_of_room(*args, **kwargs):
        raise MemoryError("the run's own")

    monkeypatch.setattr(grpo.HostGRPOTrainer, "_compute_loss_and_metrics", out_of_room)
    strikes = faulty(monkeypatch, raises, lambda part: part not in FIRST)
    with strikes as reached, pytest.raises(MemoryError, match="the run's own"):
        figures(tiny_qwen, digits.train, tmp_path, **RUN)
    assert "events" in reached


def test_an_action_gives_its_result_until_it_has_taken_too_long():
    clock = Clock()
    guard = Guard(clock=clock)

    def slow():
        clock.now += 0.6 * SECONDS
        return "result"

    assert guard.run("part", slow) == "result"
    clock.now += 100 * SECONDS  # a tenth of which it may take, too
    assert [guard.run("part", slow) for _ in range(3)] == ["result"] * 3
    assert guard.is_on("part")
    hasty = Guard(clock=clock)
    assert [hasty.run("part", slow) for _ in range(3)] == ["result", "result", None]


def test_ctrl_c_is_no_fault_of_a_part():
    guard = Guard()

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.run("part", interrupted)
    assert guard.is_on("part")
