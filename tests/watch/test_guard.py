"""What only watches may not end a run: each guarded part fails in real runs."""

import threading
from contextlib import contextmanager

import pytest

from swift_grpo_ext.testing import newest_version
from swift_grpo_ext.trainer import grpo
from swift_grpo_ext.watch.guard import PARTS, Guard
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


@contextmanager
def faulty(monkeypatch, strikes):
    """Let the parts that are struck fail before they do their work; names of all that were reached."""
    reached = set()
    run = Guard.run

    def tried(guard, name, action):
        def struck():
            reached.add(name)
            if strikes(name):
                raise ValueError("injected\nand a second line")
            return action()

        return run(guard, name, struck)

    with monkeypatch.context() as patch:
        patch.setattr(Guard, "run", tried)
        yield reached


@pytest.fixture(scope="module")
def healthy(tiny_qwen, digits, tmp_path_factory):
    return trained(figures(tiny_qwen, digits.train, tmp_path_factory.mktemp("healthy"), **RUN))


def trained(figures_of_run):
    return {name: figures_of_run[name] for name in TRAINED}


def test_a_run_goes_on_when_all_parts_fail(healthy, tiny_qwen, digits, tmp_path, monkeypatch):
    with faulty(monkeypatch, lambda part: part not in FIRST) as reached, told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path, **RUN)
    assert reached == (PARTS | NAMED) - ELSEWHERE
    for part in reached - FIRST:
        (line,) = [text for text in messages if text.startswith(f"swift-grpo-ext: {part} turned off")]
        assert "ValueError: injected (" in line
        assert "\n" not in line
    assert trained(ours) == healthy
    assert not [thread for thread in threading.enumerate() if isinstance(thread, Watchdog)]
    assert (newest_version(tmp_path) / "checkpoint-2" / "trainer_state.json").is_file()


@pytest.mark.parametrize("part", sorted(FIRST))
def test_a_run_goes_on_without_monitors(part, healthy, tiny_qwen, digits, tmp_path, monkeypatch):
    with faulty(monkeypatch, lambda name: name == part), told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path, **RUN)
    assert any(f" {part} turned off" in text for text in messages)
    assert trained(ours) == healthy


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", sorted((PARTS | NAMED) - ELSEWHERE))
def test_a_run_goes_on_when_a_part_fails(part, healthy, tiny_qwen, digits, tmp_path, monkeypatch):
    with faulty(monkeypatch, lambda name: name == part), told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path, **RUN)
    assert any(f" {part} turned off" in text for text in messages)
    assert trained(ours) == healthy


@pytest.mark.slow
def test_the_mean_of_kl_is_ms_swifts_where_ours_fails(tiny_qwen, digits, tmp_path, monkeypatch):
    with faulty(monkeypatch, lambda part: part == "mean of kl") as reached:
        ours = figures(tiny_qwen, digits.train, tmp_path, beta=0.04)
    assert "mean of kl" in reached
    assert len(ours["kl"]) == len(ours["loss"])


def test_the_error_of_a_run_is_its_own_where_what_watches_fails(tiny_qwen, digits, tmp_path, monkeypatch):
    def out_of_room(*args, **kwargs):
        raise MemoryError("the run's own")

    monkeypatch.setattr(grpo.HostGRPOTrainer, "_compute_loss_and_metrics", out_of_room)
    strikes = faulty(monkeypatch, lambda part: part not in FIRST)
    with strikes as reached, pytest.raises(MemoryError, match="the run's own"):
        figures(tiny_qwen, digits.train, tmp_path, **RUN)
    assert "events" in reached


def test_ctrl_c_is_no_fault_of_a_part():
    guard = Guard()

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.run("part", interrupted)
    assert guard.is_on("part")
